#!/bin/bash
#SBATCH --job-name=ResNet50
#SBATCH --partition=gpus
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=160
#SBATCH --gres=gpu:4
#SBATCH --propagate=CORE
#SBATCH --output=%x_%j.output
#SBATCH --error=%x_%j.err

module purge
module load gcc/8.3.0 || exit 1
module load cuda/10.2 || exit 1
module load cudnn/7.6.4 || exit 1
module load nccl/2.4.8 || exit 1
module load tensorrt/6.0.1 || exit 1
module load openmpi/4.0.1 || exit 1
module load atlas/3.10.3 || exit 1
module load scalapack/2.0.2 || exit 1
module load fftw/3.3.8 || exit 1
module load szip/2.1.1 || exit 1
module load ffmpeg/4.2.1 || exit 1
module load opencv/4.1.1 || exit 1
module load python/3.7.4_ML || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
python ResNet50.py --n_gpus 4
