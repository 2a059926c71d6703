"""A client that writes through any of several API servers, as a client with retries does."""
import json
import ssl
import threading
import time
import urllib.error
import urllib.request


class Writer(threading.Thread):
    """Creates ConfigMaps through one API server, and continues with the next one when a request fails."""
    # Of the names of its objects, seconds between two of them, and seconds for a response.
    prefix, pause, patience = "write", 0.02, 3

    def __init__(self, servers, ca, certificate, key, first=0):
        super().__init__(daemon=True)
        self.context = ssl.create_default_context(cafile=ca)
        self.context.load_cert_chain(certificate, key)
        self.servers, self.at = servers, first
        self.acknowledged, self.longest, self.over, self.wrong = [], 0.0, False, None
        # Requests that failed, and why the last one did.
        self.failures, self.reason = 0, None

    def request(self, server, path, body=None):
        request = urllib.request.Request(server + path, data=body and json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=self.patience, context=self.context)

    def run(self):
        number = 0
        while not self.over:
            name, began = f"{self.prefix}-{number}", time.monotonic()
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(number)}}
            while not self.over:
                try:
                    self.request(self.servers[self.at], "/api/v1/namespaces/default/configmaps", body).close()
                    break
                except urllib.error.HTTPError as error:
                    # The response to an earlier attempt was lost.
                    if error.code == 409:
                        break
                    text = error.read()
                    # A server that fails /readyz admits nothing yet, as upstream with code 403. A load balancer would pass it over.
                    if error.code not in (429, 500, 503, 504) and b"not yet ready to handle request" not in text:
                        self.wrong = f"{name}: {error.code} {text[:200]}"
                        return
                    reason = f"{error.code} {text[:200]}"
                except (OSError, ssl.SSLError, ValueError, TimeoutError) as error:
                    reason = f"{type(error).__name__} {error}"
                self.failures, self.reason = self.failures + 1, f"{name} at {self.servers[self.at]}: {reason}"
                self.at = (self.at + 1) % len(self.servers)
                time.sleep(0.05)
            else:
                return
            self.acknowledged.append(name)
            self.longest = max(self.longest, time.monotonic() - began)
            number += 1
            time.sleep(self.pause)

    def end(self):
        """Ends the writes. An error that a client with retries would not overcome is an AssertionError."""
        self.over = True
        self.join(30)
        assert not self.wrong, self.wrong
