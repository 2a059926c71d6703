"""A minimal HTTP/2 client that can send invalid frames. Responses are only classified, not decoded."""
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def text(word):
    """A string of HPACK without Huffman code, shorter than 127 bytes."""
    return bytes([len(word)]) + word.encode()


def grpc_headers(path):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
              ("content-type", "application/grpc"), ("te", "trailers")]
    return b"".join(b"\x00" + text(name) + text(value) for name, value in fields)


def message(content):
    """A gRPC message behind its prefix."""
    return struct.pack(">BI", 0, len(content)) + content


class Connection:
    """A connection whose frames are written by hand; `ended` has the streams that the server closed."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.window, self.first, self.windows = b"", 65_535, 65_535, {}
        self.ended, self.closed, self.next = set(), False, 1
        self.socket.sendall(PREFACE + self.frame(SETTINGS, 0, 0, b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def call(self, path):
        """Opens a stream without sending its body."""
        stream, self.next = self.next, self.next + 2
        self.windows[stream] = self.first
        self.socket.sendall(self.frame(HEADERS, END_HEADERS, stream, grpc_headers(path)))
        return stream

    def send(self, stream, content, end=False):
        """Sends a part of a body within the flow-control window; returns false if the stream or connection was closed."""
        for at in range(0, len(content), 16_384):
            part = content[at:at + 16_384]
            while min(self.window, self.windows[stream]) < len(part):
                if stream in self.ended or not self.receive():
                    return False
            if stream in self.ended:
                return False
            self.window -= len(part)
            self.windows[stream] -= len(part)
            last = end and at + 16_384 >= len(content)
            try:
                self.socket.sendall(self.frame(DATA, END_STREAM if last else 0, stream, part))
            except OSError:
                self.closed = True
                return False
        return True

    def receive(self, seconds=10):
        """Receives one frame; returns false if none came or the server closed the connection."""
        self.socket.settimeout(seconds)
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                more = self.socket.recv(1 << 16)
                if not more:
                    self.closed = True
                    return False
                self.buffer += more
        except socket.timeout:
            return False
        except OSError:
            self.closed = True
            return False
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9:9 + length], self.buffer[9 + length:]
        self.take(kind, flags, stream, payload)
        return True

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:
                    self.windows = {key: left + value - self.first for key, left in self.windows.items()}
                    self.first = value
            self.socket.sendall(self.frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(self.frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind == RST_STREAM or kind == HEADERS and flags & END_STREAM:
            self.ended.add(stream)
