# The worker, the stand-in and the installation of the stack in docker-compose.yml: one image, because
# they are one checkout. Dependencies are installed by hash before the code, so that a change of
# code does not install them again.
FROM python:3.11-slim AS tailrace

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 TZ=UTC
WORKDIR /opt/tailrace

COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY schemas ./schemas
COPY connectors ./connectors
COPY streams ./streams
COPY sandbox ./sandbox
# Editable: the sandbox is run from the checkout and is no part of the package.
RUN pip install --no-deps --no-build-isolation --editable .

RUN useradd --create-home --uid 10001 tailrace \
    && mkdir -p /var/lib/tailrace && chown tailrace /var/lib/tailrace
USER tailrace
VOLUME /var/lib/tailrace

ENTRYPOINT ["tailrace"]
CMD ["worker"]
