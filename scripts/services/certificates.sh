#!/bin/sh
# Makes an authority, whose key is not kept, and what it signs for a server on this host, and its clients: ca.pem, server.key and
# server.crt in DIRECTORY, for 30 days.
# usage: scripts/services/certificates.sh DIRECTORY
set -eu
umask 077
cd "$1"
cat > certificates.cnf <<'EOF'
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
EOF
make() {
  openssl req -config certificates.cnf -x509 -days 30 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 "$@"
}
make -extensions ca -subj "/CN=Weirgate's services" -keyout ca.key -out ca.pem
make -extensions server -subj /CN=localhost -CA ca.pem -CAkey ca.key -keyout server.key -out server.crt
rm ca.key certificates.cnf
chmod 644 ca.pem server.crt
