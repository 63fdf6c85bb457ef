#!/usr/bin/env bash
# Builds the image and runs docker-compose.yml, as root on Debian, with Debian's own Docker engine and no registry:
#
#   apt-get install --no-install-recommends docker.io docker-compose debootstrap prometheus
#   tests/deploy/compose_up.sh FOLDER
#
# A Debian made by debootstrap stands in for the Python base image, Debian's Prometheus for that of Prometheus, and a web
# server for Grafana, each under the name that the files give. The rest is as it stands: the Dockerfile, the compose file,
# the configuration. The engine that runs has a network of its own, so nothing of this machine's is touched or taken.
# LLAMA_SERVER=FOLDER puts a llama-server into /app of the base, where the images of llama.cpp have theirs.
# It takes two to three minutes, and is not a part of CI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(realpath -m "$1")
export DOCKER_HOST=unix://$folder/docker.sock DOCKER_BUILDKIT=1 COMPOSE_PROJECT_NAME=paceline-check
# Client and engine of one version, whatever else is installed.
export PATH="/usr/bin:/usr/sbin:/sbin:$PATH"

say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
fail() {
    docker-compose logs --no-color --tail 40 paceline >&2 2>/dev/null || true
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
expect() { [[ "$2" == *"$1"* ]] || fail "expected '$1' in: $2"; }

stop_engine() {
    [[ -e $folder/pid ]] || return 0
    local pid
    pid=$(<"$folder/pid")
    kill "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
}
trap stop_engine EXIT

# engine own|shared: with a network of its own, or in ours, without touching it.
engine() {
    stop_engine
    local spaces=(--mount --propagation private) flags=(--bridge none --iptables=false --ip-forward=false --ip-masq=false)
    [[ $1 == own ]] && spaces+=(--net) flags=()
    # Networks that an earlier run left would come up again, here too.
    rm -rf "$folder/data/network"
    unshare "${spaces[@]}" sh -c 'ip link set lo up; exec dockerd "$@"' sh --host "$DOCKER_HOST" --pidfile "$folder/pid" \
        --data-root "$folder/data" --exec-root "$folder/exec" "${flags[@]}" >"$folder/engine.log" 2>&1 &
    for _ in $(seq 100); do
        docker info >/dev/null 2>&1 && return
        sleep 0.2
    done
    tail "$folder/engine.log" >&2
    fail "the engine does not answer"
}

# stand_in IMAGE: an image of that name from the lines of a Dockerfile on standard input.
stand_in() {
    { printf 'FROM %s\nHEALTHCHECK NONE\n' "$base"; cat; } | docker build --quiet --network host --tag "$1" - >/dev/null
}

compose() { docker-compose "$@"; }
inside() { compose exec -T paceline "$@"; }
# status PATH KEY: what the service answers on the port that Compose publishes.
status() {
    nsenter --target "$(<"$folder/pid")" --net -- \
        curl --silent --output "$folder/answer" --write-out '%{http_code}' --max-time 120 \
        --header "Authorization: Bearer $2" "${@:3}" "http://127.0.0.1:8088$1"
}

mkdir -p "$folder"
base=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
image_of() { sed -n "s|^ *image: \($1:.*\)|\1|p" docker-compose.yml; }

say "the base: a Debian in place of $base"
if [[ ! -d $folder/root ]]; then
    debootstrap --variant=minbase --include=ca-certificates trixie "$folder/part" >"$folder/debootstrap.log"
    # Who stands between this machine and the package registries may have certificates of their own.
    cp /etc/ssl/certs/ca-certificates.crt "$folder/part/etc/ssl/certs/"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$folder/part/etc/pip.conf"
    [[ -z ${LLAMA_SERVER:-} ]] || cp -r "$LLAMA_SERVER" "$folder/part/app"
    mv "$folder/part" "$folder/root"
fi
engine shared
# As the images of llama.cpp have them: ours must replace them.
tar -C "$folder/root" -c . | docker import --change 'ENV LLAMA_ARG_HOST=0.0.0.0' --change 'WORKDIR /app' \
    --change 'ENTRYPOINT ["/app/llama-server"]' --change 'HEALTHCHECK CMD ["false"]' - "$base" >/dev/null

say "docker build"
docker build --network host --tag "$(image_of paceline)" --target demo . 2>"$folder/build.log" || {
    tail -n 30 "$folder/build.log" >&2
    fail "docker build"
}
stand_in "$(image_of prom/prometheus)" <<'END'
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends prometheus \
    && install --directory --owner=65534 /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]
END
stand_in "$(image_of grafana/grafana)" <<'END'
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends busybox \
    && ln -s /usr/bin/busybox /usr/local/bin/wget && mkdir -p /srv/api && touch /srv/api/health
USER 472
STOPSIGNAL SIGKILL
ENTRYPOINT ["/usr/bin/busybox", "httpd", "-f", "-p", "3000", "-h", "/srv"]
END
docker images
docker inspect --format '{{json .Config.Labels}}' "$(image_of paceline)"

say "docker-compose up"
engine own
compose down --volumes >/dev/null 2>&1
compose up --detach --no-build || fail "docker-compose up"
compose ps

say "keys"
admin=$(inside cat /data/admin.key)
metrics=$(compose exec -T prometheus cat /keys/metrics.key)
expect "600 10001 10001" "$(inside stat -c '%a %u %g' /data/admin.key)"
expect "640 10001 10001" "$(inside stat -c '%a %u %g' /keys/metrics.key)"
[[ $admin == pl_* && $metrics == pl_* && $admin != "$metrics" ]] || fail "keys"
compose exec -T --user 65534:65534 paceline cat /keys/metrics.key >/dev/null 2>&1 && fail "anybody reads the key for metrics"

say "access"
[[ $(status /profiles wrong) == 401 ]] || fail "a wrong key"
[[ $(status /profiles "$metrics") == 403 ]] || fail "the key for metrics opens profiles"
[[ $(status /metrics "$metrics") == 200 ]] || fail "the key for metrics does not open metrics"
[[ $(status /ready "$admin") == 200 ]] || fail "not ready: $(<"$folder/answer")"

say "confined"
for place in /x /opt/paceline/x /models/x; do
    inside touch "$place" 2>/dev/null && fail "$place can be written"
done
expect "CapBnd:	0000000000000000" "$(inside grep Cap /proc/self/status)"

say "both profiles of the demo answer"
inside paceline status
for profile in gemma-baseline gemma-ngram; do
    body="{\"model\": \"$profile\", \"prompt\": \"A bicycle has\", \"max_tokens\": 8}"
    [[ $(status /v1/completions "$admin" --json "$body") == 200 ]] || fail "$profile: $(<"$folder/answer")"
    cut -c -120 "$folder/answer"
done

say "Prometheus has them"
for _ in $(seq 60); do
    seen=$(compose exec -T prometheus promtool query instant http://127.0.0.1:9090 \
        'up{job="paceline"} * on (job) group_left () count by (job) (paceline_requests_total)' || true)
    [[ $seen == *"=> 2 "* ]] && break
    sleep 1
done
expect "=> 2 " "$seen"
echo "$seen"

say "a profile of one's own, and a copy"
inside cat /data/profiles/gemma-baseline.yaml | sed 's/^id: .*/id: own/' >"$folder/own.yaml"
inside paceline check /dev/stdin <"$folder/own.yaml" || fail "paceline check"
inside sh -c 'cat > /data/profiles/own.yaml' <"$folder/own.yaml"
inside python3 - /data <deploy/backup.py >"$folder/paceline.tar"
tar -tvf "$folder/paceline.tar"

say "stop, and a second start: the keys stay, and a deleted profile does not come back"
inside rm /data/profiles/gemma-ngram.yaml
compose stop paceline
expect "Application shutdown complete" "$(compose logs --no-color --tail 5 paceline 2>&1)"
compose up --detach --no-build
[[ $(inside cat /data/admin.key) == "$admin" ]] || fail "another key"
expect "gemma-baseline.yaml" "$(inside ls /data/profiles)"
[[ $(inside ls /data/profiles) != *ngram* ]] || fail "the deleted profile is back"

say "the copy in place of everything"
compose down --volumes
restore=$(sed -n "s/.*--entrypoint sh paceline -c '\(.*\)' < paceline.tar/\1/p" docs/deployment.md)
compose run --rm --no-deps -T --entrypoint sh paceline -c "$restore" <"$folder/paceline.tar"
compose up --detach --no-build
[[ $(inside cat /data/admin.key) == "$admin" ]] || fail "the key is not that of the copy"
expect "600 10001 10001" "$(inside stat -c '%a %u %g' /data/paceline.db)"
[[ $(inside ls /data/profiles) == *gemma-ngram*own* ]] || fail "the profiles are not those of the copy"
[[ $(status /requests "$admin") == 200 ]] || fail "no requests"
[[ $(grep -o '"outcome":"completed"' "$folder/answer" | wc -l) == 2 ]] || fail "not both requests: $(<"$folder/answer")"

say "a wrong setting"
code=0
said=$(compose run --rm --no-deps -T -e PACELINE_PORT=eighty paceline serve 2>&1) || code=$?
expect PACELINE_PORT "$said"
[[ $code == 2 ]] || fail "status $code"

compose down --volumes
say "all as it should be"
