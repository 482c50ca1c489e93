"""What is run inside: Python that tries to get out, without asking the environment for a proxy.

A probe is a list of cases that are tried side by side; each tells what became of it as JSON. Its
first act is to make sure that PID 1 is agentd: nothing of this is ever done outside.
"""

from __future__ import annotations

import json
from typing import Any

PRELUDE = r"""
import base64, errno, json, os, random, socket, ssl, struct, sys, threading, time
with open('/proc/1/cmdline') as first:
    if first.read().rstrip('\0') != 'agentd': sys.exit('not inside a sandbox')
V = json.loads(sys.stdin.read())
LIMIT = V.get('limit', 10)
def name_of(e):
    if isinstance(e, socket.timeout): return 'timeout'
    if isinstance(e, ssl.SSLError): return 'tls: ' + str(e.reason or e)
    if isinstance(e, socket.gaierror): return 'name: ' + str(e)
    if isinstance(e, OSError) and e.errno: return errno.errorcode.get(e.errno, str(e.errno))
    return type(e).__name__ + ': ' + str(e)
def raw(text): return text.encode('latin-1') if isinstance(text, str) else text
def drain(s, most=1 << 20):
    got = b''
    while len(got) < most:
        data = s.recv(65536)
        if not data: break
        got += data
    return got
def finish(s, sends, pause=0.0, until=None):
    'Sends, then reads to the end; what came, and how it ended. Who is answered waits less for more'
    got, end = b'', 'eof'
    try:
        for data in sends:
            s.sendall(raw(data))
            if pause: time.sleep(pause)
        while True:
            data = s.recv(65536)
            if not data: break
            got += data
            if until and raw(until) in got: break
            s.settimeout(min(LIMIT, 2))
    except OSError as e: end = 'idle' if got and name_of(e) == 'timeout' else name_of(e)
    return {'got': got.decode('latin-1'), 'end': end}
def connect(host, port, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(LIMIT)
    s.connect((host, port) if family == socket.AF_INET else (host, port, 0, 0))
    return s
def talk(host, port, *sends, family=socket.AF_INET, pause=0.0, until=None):
    'TCP to an address or a name'
    try: s = connect(host, port, family)
    except OSError as e: return {'got': '', 'end': name_of(e), 'connected': False}
    with s: return {**finish(s, [ported(d, port) for d in sends], pause, until), 'connected': True}
def secure(s, sni, verify=False, alpn=None):
    c = ssl.create_default_context()
    if not verify: c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    if alpn: c.set_alpn_protocols(alpn)
    return c.wrap_socket(s, server_hostname=sni)
def tls(host, port, sni, *sends, verify=False, through=None, until=None, alpn=None):
    'TLS with any name in the greeting; `through`: said before it, as to a proxy'
    try:
        s = connect(host, port)
        if through:
            s.sendall(raw(through))
            said = b''
            while b'\r\n\r\n' not in said:
                data = s.recv(65536)
                if not data: break
                said += data
            if b' 200 ' not in said.split(b'\r\n')[0]:
                try: said += drain(s)
                except OSError: pass
                return {'got': said.decode('latin-1'), 'end': 'refused', 'connected': False}
        s = secure(s, sni, verify, alpn)
    except OSError as e: return {'got': '', 'end': name_of(e), 'connected': False}
    with s:
        issuer = ''
        if verify: issuer = str(s.getpeercert().get('issuer'))
        sends = [ported(d, port) for d in sends]
        return {**finish(s, sends, until=until), 'connected': True, 'issuer': issuer}
PROXY, SOCKS = ('198.18.0.1', 3128), ('198.18.0.1', 1080)
def head_of(s):
    said = b''
    while b'\r\n\r\n' not in said:
        data = s.recv(65536)
        if not data: break
        said += data
    return said
def through(head, payload, to=PROXY):
    'A proxy is told `head`; if it says 200, the payload goes through, and comes back from an echo'
    try:
        with connect(*to) as s:
            s.sendall(raw(head))
            said = head_of(s)
            if b' 200 ' not in said.split(b'\r\n')[0]:
                try: said += drain(s)
                except OSError: pass
                return {'got': '', 'end': 'refused', 'said': said.decode('latin-1')}
            return {**finish(s, [payload], until=payload), 'said': said.decode('latin-1')}
    except OSError as e: return {'got': '', 'end': name_of(e), 'said': ''}
def tunnel(target, payload, host=None):
    target = raw(target)
    return through(b'CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (target, host or target), payload)
def socks(request, payload, greeting=b'\x05\x01\x00', to=SOCKS):
    'SOCKS: a greeting (none for version 4), a request, then the payload if the answer is yes'
    try:
        with connect(*to) as s:
            if greeting:
                s.sendall(greeting)
                if s.recv(2)[1:] != b'\0': return {'got': '', 'end': 'refused', 'code': 'greeting'}
            s.sendall(raw(request))
            said = s.recv(300)
            yes = said[1:2] == (b'\0' if greeting else b'\x5a')
            if not yes: return {'got': '', 'end': 'refused', 'code': said[1:2].hex()}
            return {**finish(s, [payload], until=payload), 'code': 'ok'}
    except OSError as e: return {'got': '', 'end': name_of(e), 'code': ''}
def socks5(host, port, payload, **more):
    name = raw(host)
    return socks(b'\x05\x01\x00\x03' + bytes([len(name)]) + name + struct.pack('!H', port), payload,
                 **more)
def socks4a(host, port, payload):
    request = b'\x04\x01' + struct.pack('!H', port) + bytes([0, 0, 0, 1]) + b'me\0'
    return socks(request + raw(host) + b'\0', payload, greeting=b'')
def hello(sni, *extensions, versions=b'\x03\x04\x03\x03'):
    'A ClientHello as bytes, with extensions of any kind'
    def block(size, data): return len(data).to_bytes(size, 'big') + data
    def extension(kind, data): return struct.pack('!H', kind) + block(2, data)
    parts = b''
    if sni is not None:
        names = sni if isinstance(sni, list) else [sni]
        entries = b''.join(b'\0' + block(2, raw(name)) for name in names)
        parts += extension(0, block(2, entries))
    parts += extension(43, block(1, versions)) + extension(10, block(2, b'\0\x1d\0\x17'))
    parts += extension(13, block(2, b'\x04\x03\x08\x04\x04\x01'))
    parts += extension(51, block(2, b'\0\x1d' + block(2, os.urandom(32))))
    for kind, data in extensions: parts += extension(kind, data)
    body = b'\x03\x03' + os.urandom(32) + block(1, os.urandom(32))
    body += block(2, b'\x13\x01\x13\x02\xc0\x2b\xc0\x2f') + block(1, b'\0') + block(2, parts)
    return b'\x01' + block(3, body)
def records(message, size=16384):
    'TLS records of a handshake message, cut in pieces'
    pieces = [message[i:i + size] for i in range(0, len(message), size)]
    return b''.join(b'\x16\x03\x01' + len(p).to_bytes(2, 'big') + p for p in pieces)
def greet(host, port, wire, pause=0.0, size=0):
    'Sends a greeting; the type of the first record that comes back, 22: the other side answers'
    sends = [wire[i:i + size] for i in range(0, len(wire), size)] if size else [wire]
    try:
        with connect(host, port) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for data in sends:
                s.sendall(data)
                if pause: time.sleep(pause)
            got = s.recv(5)
            return {'got': got.hex(), 'end': 'eof' if not got else str(got[0])}
    except OSError as e: return {'got': '', 'end': name_of(e)}
def mark(how, number): return 'mark-' + how.replace(' ', '-').replace(',', '') + f'-{number}-'
def at_good(wire, **more): return greet('good.test', V['tls'], wire, **more)
def at_plain(*sends, **more): return talk('good.test', V['plain'], *sends, **more)
def ported(data, port): return raw(data).replace(b':@@', b':%d' % port)
def get(host, path='/', method='GET', headers='', body='', close=True):
    'A request; where it is sent puts the port behind a host that has none, as clients do'
    if ':' not in host: host += ':@@'
    end = 'Connection: close\r\n' if close else ''
    size = 'Content-Length: %d\r\n' % len(raw(body)) if body else ''
    return f'{method} {path} HTTP/1.1\r\nHost: {host}\r\n{end}{size}{headers}\r\n{body}'
def lookup(name):
    try: return sorted({a[4][0] for a in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError as e: return name_of(e)
def question(name, kind=1, flags=0x0100, count=1, tail=b''):
    labels = b''.join(bytes([len(l)]) + l for l in raw(name).split(b'.') if l) + b'\0'
    return struct.pack('!HHHHHH', random.randrange(65536), flags, count, 0, 0, 0) + (
        labels + struct.pack('!HH', kind, 1)) * count + tail
def dns(wire, to=('10.0.2.3', 53), tcp=False, limit=3):
    'What a name server says to these bytes: its code, its addresses, or how it was refused'
    try:
        if tcp:
            with socket.create_connection(to, limit) as s:
                s.sendall(struct.pack('!H', len(wire)) + wire)
                size = s.recv(2)
                if len(size) < 2: return {'end': 'eof'}
                data = b''
                while len(data) < struct.unpack('!H', size)[0]:
                    more = s.recv(65536)
                    if not more: return {'end': 'eof'}
                    data += more
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(limit)
                s.sendto(wire, to)
                data = s.recvfrom(65535)[0]
    except OSError as e: return {'end': name_of(e)}
    if len(data) < 12: return {'end': 'short'}
    return {'end': 'answer', 'code': data[3] & 15, 'answers': struct.unpack('!H', data[6:8])[0],
            'truncated': bool(data[2] & 2), 'size': len(data), 'data': data.hex()}
def send_udp(host, port, family=socket.AF_INET, kind=socket.SOCK_DGRAM, data=b'x', limit=2):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(limit)
            s.sendto(data, (host, port) if family == socket.AF_INET else (host, port, 0, 0))
            return 'answered ' + repr(s.recv(100))
    except OSError as e: return name_of(e)
def side_by_side(cases):
    'Each case in a thread; how long it took stands beside what it says'
    said = {}
    def run(label, case):
        begun = time.monotonic()
        try: value = case()
        except Exception as e: value = {'got': '', 'end': 'probe: ' + name_of(e)}
        if not isinstance(value, dict): value = {'value': value}
        value['seconds'] = time.monotonic() - begun
        said[label] = value
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in cases.items()]
    for t in threads: t.start()
    for t in threads: t.join(LIMIT * 3)
    for label in cases: said.setdefault(label, {'got': '', 'end': 'hang', 'seconds': LIMIT * 3})
    return said
def answer(**values): print(json.dumps(values))
"""


def script(source: str) -> str:
    """A whole probe; its values come on its standard input."""
    return PRELUDE + source


def values(given: dict[str, Any]) -> str:
    return json.dumps(given)
