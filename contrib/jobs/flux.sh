#!/bin/bash
#flux: -N4 -t 12h
# Four workers a node. flux batch contrib/jobs/flux.sh, after the program has been put in here
exec ddrun --launcher=flux --hosts="$(flux hostlist local)" --nproc-per-node=4 train.py
