#!/bin/sh
# Checks what runs Paceline elsewhere: `make check-deploy`. Starts nothing, and needs no container engine.
# LINTERS names the folder of hadolint and check-jsonschema, PACELINE the command that stands in for the installed one.
set -eu
cd "$(dirname "$0")/.."

need() {
    command -v "$1" >/dev/null 2>&1 && return
    echo "$1 is missing: apt-get install $2" >&2
    exit 1
}

need docker-compose docker-compose
need systemd-analyze systemd
need promtool prometheus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo "Dockerfile: hadolint"
"$LINTERS/hadolint" Dockerfile
sh -n deploy/docker/start

echo "compose files: the specification's schema, then docker-compose config"
"$LINTERS/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml docker-compose.gpu.yml
docker-compose --file docker-compose.yml config --quiet
docker-compose --file docker-compose.yml --file docker-compose.gpu.yml config >"$scratch/gpu.yml"
"$LINTERS/check-jsonschema" --builtin-schema vendor.compose-spec "$scratch/gpu.yml"

echo "unit: systemd-analyze verify, and at most this exposed (of 10)"
# A path that is there in place of the one of an installation: that alone is not as it stands.
sed "s|/opt/paceline/bin/paceline|$PACELINE|" deploy/systemd/paceline.service >"$scratch/paceline.service"
# What it does not know it only tells of, and says that all is well.
systemd-analyze verify --man=no "$scratch/paceline.service" 2>&1 | tee "$scratch/complaints"
test ! -s "$scratch/complaints"
systemd-analyze security --offline=yes --threshold=20 --no-pager "$scratch/paceline.service" | tail -n 1

echo "Prometheus: promtool"
# The key's file is in a volume, so the files that it names are not looked for.
promtool check config --syntax-only deploy/prometheus/prometheus.yml
