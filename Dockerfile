# The operator's image, which helm/rightsizer runs: docker build --build-arg VERSION=1.2.3 --tag IMAGE .
# Every Python package comes from a lock with hashes. Where no builder runs: make images.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
COPY deploy/images/build.lock deploy/images/operator.lock ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement build.lock \
 && python -m venv /opt/rightsizer \
 && /opt/rightsizer/bin/pip install --no-cache-dir --require-hashes --requirement operator.lock
COPY pyproject.toml README.md LICENSE ./
COPY sizing sizing
COPY crds crds
COPY launch launch
COPY telemetry telemetry
COPY local local
COPY slurm slurm
COPY operator operator
COPY cli cli
COPY python python
# The version is the tag's: without it the image says 0.0.0.dev0
ARG VERSION=0.0.0.dev0
RUN SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION} /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/rightsizer/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
 && /opt/rightsizer/bin/pip uninstall --yes pip

FROM ${BASE}
COPY --from=build /opt/rightsizer /opt/rightsizer
ENV PATH=/opt/rightsizer/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
ENTRYPOINT ["rightsizer"]
