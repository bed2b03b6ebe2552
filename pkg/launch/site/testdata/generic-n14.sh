#!/bin/bash
#SBATCH --account=project1
#SBATCH --nodes=7
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:2
#SBATCH --propagate=CORE
#SBATCH --output=%x-%j.out

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun python train.py
