#!/bin/bash
#SBATCH --job-name=unet-n4
#SBATCH --partition=gpus
#SBATCH --account=project1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=160
#SBATCH --gres=gpu:4
#SBATCH --time=01:30:00
#SBATCH --propagate=CORE
#SBATCH --output=/home/ada/logs/unet/%x_%j.output
#SBATCH --error=/home/ada/logs/unet/%x_%j.err

module purge
module load CUDA/12 || exit 1
module load Python || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
lockstep train --config unet2d
