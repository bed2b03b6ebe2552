#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --partition=develbooster
#SBATCH --account=project1
#SBATCH --reservation=course-day-1
#SBATCH --nodes=3
#SBATCH --ntasks=10
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --gres=gpu:4
#SBATCH --time=1-02:00:01
#SBATCH --dependency=afterok:12:13
#SBATCH --array=0-49%4
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --propagate=CORE
#SBATCH --output="/home/ada/100%% mine/%A_%a.log"

module load CUDA/12 || exit 1
module load Python || exit 1
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export CUDA_VISIBLE_DEVICES=0,1,2,3
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export LOCKSTEP_SCRATCH="$SCRATCH/$USER"
export MESSAGE='it'\''s $HOME'
export EMPTY=''
time mpirun lockstep train 'a b'
