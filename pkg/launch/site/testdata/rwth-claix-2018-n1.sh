#!/bin/bash
#SBATCH --partition=c18g
#SBATCH --account=project1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:1
#SBATCH --propagate=CORE
#SBATCH --output=%x-%j.out

module load CUDA/12 || exit 1
module load Python || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
python train.py
