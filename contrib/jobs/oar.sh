#!/bin/bash
#OAR -l nodes=4,walltime=12:00:00
# Four workers a node. oarsub -S contrib/jobs/oar.sh, after you have inserted your program
exec ddrun --nproc-per-node=4 train.py
