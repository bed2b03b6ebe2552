#!/bin/bash
#SBATCH --job-name=unet-n4
#SBATCH --partition=batch
#SBATCH --account=project1
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --gres=gpu:2
#SBATCH --time=01:30:00
#SBATCH --propagate=CORE
#SBATCH --output=/home/ada/logs/unet/%x-%j.out

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=lo
export GLOO_SOCKET_IFNAME=lo
export LOCKSTEP_SCRATCH="/tmp"
srun lockstep train --config unet2d
