#!/bin/bash
#SBATCH --job-name=sc21
#SBATCH --constraint=gpu
#SBATCH --account=project1
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --array=0-2
#SBATCH --propagate=CORE
#SBATCH --image=romerojosh/containers:sc21_tutorial
#SBATCH --output=%x-%j.out

module load CUDA/12 || exit 1
module load Python || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
export MASTER_ADDR="$(hostname)"
export NCCL_NET_GDR_LEVEL="PHB"
srun -u shifter python train.py
