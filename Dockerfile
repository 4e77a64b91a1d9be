# One image, three stages. `build` installs dependencies by hash and makes the wheel; the last one is
# what production runs: the service, its libraries and nothing else. `--target sandbox` adds the
# stand-in and the installation of the stack in docker-compose.yml.
FROM python:3.11-slim AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH

# Before the code, so that a change of code does not install them again.
COPY deploy/requirements.lock ./deploy/
RUN pip install --require-hashes -r deploy/requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY schemas ./schemas
COPY connectors ./connectors
COPY streams ./streams
RUN python -m hatchling build -t wheel -d dist && pip install --no-deps dist/*.whl

FROM python:3.11-slim AS runtime

ENV PATH=/opt/tailrace/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TZ=UTC
RUN useradd --create-home --uid 10001 tailrace \
    && mkdir -p /var/lib/tailrace && chown tailrace:tailrace /var/lib/tailrace
COPY --from=build /opt/tailrace /opt/tailrace
# By number: Kubernetes cannot tell whether a name is root's.
USER 10001:10001
VOLUME /var/lib/tailrace

FROM runtime AS sandbox

COPY sandbox /opt/sandbox/sandbox
WORKDIR /opt/sandbox
ENTRYPOINT ["tailrace"]
CMD ["worker"]

FROM runtime AS service

ENTRYPOINT ["tailrace"]
CMD ["worker"]
