"""An issuer of ID tokens: an HTTPS server with a discovery document and one key, signing with openssl."""
import base64
import http.server
import json
import os
import ssl
import threading
import time

from checks import shell


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Serves from the start of a `with` block to its end; its files are in `folder`."""

    def __init__(self, folder):
        self.key, self.ca = os.path.join(folder, "issuer.key"), os.path.join(folder, "issuer.crt")
        done = shell(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.ca, "-days", "2",
                      "-subj", "/CN=issuer", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:TRUE"])
        assert done.returncode == 0, done.stderr
        modulus = shell(["openssl", "rsa", "-noout", "-modulus", "-in", self.key]).stdout.strip().removeprefix("Modulus=")
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k", "e": "AQAB", "n": encode(bytes.fromhex(modulus))}
        self.pages = {"/keys": {"keys": [key]}}
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page = issuer.pages.get(self.path)
                body = json.dumps(page).encode()
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, self.key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        self.pages["/.well-known/openid-configuration"] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def configuration(self, prefix):
        """Returns an AuthenticationConfiguration with this issuer."""
        with open(self.ca, encoding="utf-8") as file:
            issuer = {"url": self.url, "audiences": ["cluster"], "certificateAuthority": file.read()}
        return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [
            {"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": prefix}}}]}

    def sign(self, subject):
        """Returns a token for an hour."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": "cluster", "sub": subject, "iat": now, "exp": now + 3600}
        head = ".".join(encode(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k"}, claims))
        script = f"printf %s '{head}' | openssl dgst -sha256 -sign '{self.key}' | base64 -w0"
        done = shell(script)
        assert done.returncode == 0, done.stderr
        return f"{head}.{encode(base64.b64decode(done.stdout))}"
