# Image with all programs, rtad, rtad-loader and rtad-writer: see docs/guides/kubernetes.md.
#
# Both stages are Debian 12, so that the programs find the C library they were linked with. For a
# mirror or a digest, override the ARGs.
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-slim-bookworm
ARG BASE_IMAGE=docker.io/library/debian:bookworm-20260918-slim

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# Line tables are three quarters of the size; a panic reports its location without them.
ENV CARGO_PROFILE_RELEASE_STRIP=debuginfo
RUN cargo build --release --locked --package rtad --package rtad-loader --package rtad-writer

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="rtad" \
      org.opencontainers.image.description="Tells an ad platform whether a device is one you already know" \
      org.opencontainers.image.licenses="Apache-2.0"
# CA certificates for stores over TLS; the slim base has none.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /usr/share/doc/rtad/LICENSE
COPY --from=build /src/target/release/rtad /src/target/release/rtad-loader /src/target/release/rtad-writer /usr/local/bin/
# Numeric: runAsNonRoot cannot verify a name. The programs write only to configured paths.
USER 65532:65532
EXPOSE 8080 9090
CMD ["rtad", "serve", "--config", "/etc/rtad/rtad.toml"]
