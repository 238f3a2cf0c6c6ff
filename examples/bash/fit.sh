#!/usr/bin/env bash
# Fits  distance = intercept + slope * speed  to cars.csv by gradient descent, in bash and awk.
#
# A job that knows nothing of the learner library: its checkpoint is a file of its own in CHECKPOINT_DIR, replaced in one
# go after each round, and it ends at SIGTERM. Started again, it goes on after the last round that it finished.
set -eu -o pipefail
cd "$(dirname "$0")"

rounds=${ROUNDS:-150}
steps=${STEPS:-10000} # a round
rate=${RATE:-0.00005}
checkpoints=${CHECKPOINT_DIR:-checkpoints}
results=${RESULT_DIR:-results}
mkdir -p "$checkpoints" "$results"
checkpoint=$checkpoints/fit.txt

halted=
trap 'halted=yes' TERM

round=0 intercept=0 slope=0 loss=0
if [ -f "$checkpoint" ]; then
  read -r round intercept slope loss <"$checkpoint"
  echo "going on after round $round"
fi

# Reads the data once, then takes $steps steps downhill. Prints: round intercept slope loss
descend() {
  awk -F, -v round="$((round + 1))" -v a="$intercept" -v b="$slope" -v steps="$steps" -v rate="$rate" '
    NR > 1 { n++; x[n] = $1; y[n] = $2 }
    END {
      for (step = 0; step < steps; step++) {
        da = db = loss = 0
        for (i = 1; i <= n; i++) {
          error = a + b * x[i] - y[i]
          da += error; db += error * x[i]; loss += error * error
        }
        a -= rate * da / n; b -= rate * db / n
      }
      printf "%d %.17g %.17g %.6f\n", round, a, b, loss / n
    }' cars.csv
}

while [ "$round" -lt "$rounds" ]; do
  # SIGTERM reaches awk as well: a round that it cut short is none.
  if ! descend >"$checkpoint.tmp"; then
    [ -n "$halted" ] && break
    echo "awk failed" >&2
    exit 1
  fi
  sync "$checkpoint.tmp" && mv "$checkpoint.tmp" "$checkpoint"
  read -r round intercept slope loss <"$checkpoint"
  echo "round $round of $rounds: loss $loss"
  [ -z "$halted" ] || break
done

if [ "$round" -lt "$rounds" ]; then
  echo "halted after round $round"
  exit 75 # "again, please"
fi
printf '{"intercept": %.6f, "slope": %.6f, "loss": %s}\n' "$intercept" "$slope" "$loss" >"$results/fit.json"
echo "distance = $(printf '%.2f + %.2f' "$intercept" "$slope") * speed"
