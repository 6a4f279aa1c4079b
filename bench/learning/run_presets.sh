#!/usr/bin/env bash
# Every preset on seeds that chose nothing: bash bench/learning/run_presets.sh [UPDATES] [SEEDS]
# Writes one JSON a preset beside this script; takes a few minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")"
updates="${1:-200}"
seeds="${2:-800-807}"
for preset in default collapse drift exact-mu; do
  entr-lab sim --staleness 30 --preset "$preset" --seeds "$seeds" --updates "$updates" --json >"$preset.json"
done
