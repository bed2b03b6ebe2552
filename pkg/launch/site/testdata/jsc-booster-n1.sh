#!/bin/bash
#SBATCH --partition=booster
#SBATCH --account=training1
#SBATCH --reservation=course-day-1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=96
#SBATCH --gres=gpu:1
#SBATCH --propagate=CORE
#SBATCH --output=%j.out
#SBATCH --error=%j.err

module load CUDA/12 || exit 1
module load Python || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
time srun python3 train.py
