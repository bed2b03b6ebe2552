#!/bin/bash
#SBATCH --job-name=unet-n4
#SBATCH --account=project1
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --time=01:30:00
#SBATCH --propagate=CORE
#SBATCH --output=/home/ada/logs/unet/%x-%j.out

srun lockstep train --config unet2d
