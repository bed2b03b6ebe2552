# A program that prints the lines of ddp.py without training: an epoch is 200 ms of sleep,
# divided among the workers. Rank 0 also appends the numbers of each epoch to the file $1.
[ "$RANK" = 0 ] || exit 0
echo "training with $WORLD_SIZE workers"
for epoch in 1 2 3; do
    begin=$(date +%s%N)
    sleep "$(awk "BEGIN { print 0.2 / $WORLD_SIZE }")"
    nanoseconds=$(($(date +%s%N) - begin))
    set -- "$1" $(awk "BEGIN { s = $nanoseconds / 1e9; printf \"%.6f %.3f %.6f\", s, 1024 / s, 1 / $epoch }")
    echo "Epoch $epoch: loss $4 time $2s, $3 samples/sec"
    echo "$WORLD_SIZE $epoch $2 $3 $4" >>"$1"
done
