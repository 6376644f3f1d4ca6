# A slim image of the broker: no compiler, no JVM, not root. Build: docker build -t millstream .
# Not Alpine: google-re2, lz4 and confluent-kafka have no wheels for musl.
FROM python:3.13-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels /source

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/millstream --create-home millstream
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels millstream && rm -r /wheels
COPY deploy/start-node /usr/local/bin/start-node
USER millstream
VOLUME /var/lib/millstream
EXPOSE 9092 4222 9094 9999
# The network of a container is what its operator publishes: bind published ports to loopback, or set
# MILLSTREAM_SECURITY__PROTOCOL, before others can reach them (docs/security/five-minutes.md).
ENV MILLSTREAM_DATA_DIR=/var/lib/millstream/data MILLSTREAM_HOST=0.0.0.0 \
    MILLSTREAM_SECURITY__ALLOW_INSECURE_NETWORK=true
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["millstream", "health", "--bootstrap", "127.0.0.1:9092"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["millstream"]
CMD ["serve"]
