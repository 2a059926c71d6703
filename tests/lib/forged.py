"""Changes a log's content and keeps its checksums valid, as bad memory or a bug would."""
import struct

SECTOR = 512
MAGIC = b"1wvk"
FRAME, RECORD = 24, 17


def table():
    rows = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82f63b78 if number & 1 else 0)
        rows.append(number)
    return rows


TABLE = table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


def bare_sectors(log, start, end):
    """Returns the number of a frame's sectors that are all zeros."""
    cuts = [start, *range(start // SECTOR * SECTOR + SECTOR, end, SECTOR), end]
    return sum(not any(log[a:b]) for a, b in zip(cuts, cuts[1:]))


def forge(path, old, new):
    """Replaces a text by another of the same length in every record; returns the number of replacements."""
    assert len(old) == len(new)
    with open(path, "r+b") as file:
        log, at, found = bytearray(file.read()), 0, 0
        while log[at:at + 4] == MAGIC:
            length, = struct.unpack_from("<I", log, at + 4)
            record, end = at + FRAME, at + FRAME + length
            while record < end:
                size, = struct.unpack_from("<I", log, record + 9)
                data = slice(record + RECORD, record + RECORD + size)
                found += log[data].count(old)
                log[data] = log[data].replace(old, new)
                struct.pack_into("<I", log, record + 13, crc32c(log[record:record + 9] + log[data]))
                record += RECORD + size
            struct.pack_into("<I", log, at + 8, crc32c(log[at + 16:end]))
            whole = at + FRAME + length + -length % 8
            head = log[at:at + 12] + log[at + 16:at + FRAME]
            struct.pack_into("<I", log, at + 12, max(1, crc32c(head + struct.pack("<I", bare_sectors(log, at, whole)))))
            at = whole
        file.seek(0)
        file.write(log)
    return found
