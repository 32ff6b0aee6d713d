"""TLS over TCP with real clients: who has the certificates is served, who has not gets to know why, and so does the log."""

import fcntl
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import termios
import threading
import time
import unittest

import nbd

from authority import Authority
from server import BLOCK, ONEFOLD, PATIENCE, Pool, onefold, run

START = b"\0\0\0\3" + b"IHAVEOPT" + (5).to_bytes(4, "big") + bytes(4)

def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@unittest.skipIf(shutil.which("openssl") is None, "openssl is missing")
class Encrypted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="onefold-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.authority = Authority(os.path.join(cls.folder, "pki")).sign("server").sign("client")
        cls.pki = cls.authority.folder
        cls.other = Authority(os.path.join(cls.folder, "other")).sign("server").sign("client")

    def serve(self, *arguments, pki=None, memory="64M"):
        pool = Pool("128M")
        self.addCleanup(pool.__exit__)
        self.port = free_port()
        pool.serve("--listen", f"unix:{pool.path}.sock", "--listen", f"tcp:127.0.0.1:{self.port}", "--memory", memory,
                   "--tls-certificates", pki or self.pki, *arguments)
        return pool

    def uri(self, pki=None, scheme="nbds"):
        return f"{scheme}://localhost:{self.port}/default" + (f"?tls-certificates={pki or self.pki}" if scheme == "nbds" else "")

    def refused(self, uri):
        """What a client says that is not served."""
        done = run("timeout", "20", "nbdinfo", uri, check=False)
        self.assertNotIn(done.returncode, (0, 124), f"{uri}: {done.stdout}{done.stderr}")
        return done.stderr

    def test_real_clients_with_certificates_are_served_and_others_are_not(self):
        pool = self.serve("--tls", "require", "--tls-verify-peer")
        self.assertIn(f"nbds://127.0.0.1:{self.port}/default", pool.said())
        image, back = os.path.join(self.folder, "image"), os.path.join(self.folder, "back")
        with open(image, "wb") as file:
            file.write(os.urandom(32 << 20))
        run("nbdcopy", image, self.uri())
        run("nbdcopy", self.uri(), back)
        run("cmp", "-n", 32 << 20, image, back)
        credentials = f"tls-creds-x509,id=t,endpoint=client,dir={self.pki}"
        place = f"driver=nbd,host=localhost,port={self.port},export=default,tls-creds=t"
        self.assertIn("128 MiB", run("qemu-img", "info", "--object", credentials, "--image-opts", place).stdout)
        self.assertIn("128 MiB", run("qemu-img", "info", f"nbd+unix:///default?socket={pool.path}.sock").stdout, "not over TCP")

        self.refused(self.uri(scheme="nbd"))
        bare = run("nbdinfo", "--list", f"nbd://localhost:{self.port}", check=False)
        self.assertNotIn("default", bare.stdout, "no names in the clear")
        none = self.authority.without(os.path.join(self.folder, "none"), "client-cert.pem", "client-key.pem")
        self.refused(self.uri(none))
        foreign = self.authority.without(os.path.join(self.folder, "foreign"), "client-cert.pem", "client-key.pem")
        for name in ["client-cert.pem", "client-key.pem"]:
            shutil.copy(self.other.file(name), foreign)
        self.refused(self.uri(foreign))
        late = Authority(os.path.join(self.folder, "late"))
        for name in ["ca-cert.pem", "ca-key.pem"]:
            shutil.copy(self.authority.file(name), late.folder)
        late.sign("client", "-days", "-1")
        self.refused(self.uri(late.folder))
        self.assertIn("certificate", self.refused(self.uri(self.other.folder)), "the client does not trust this server")
        for reason in ["no certificates", "BadSignature", "Expired", "the client's certificate has expired: sign a new one"]:
            self.assertIn(reason, pool.said())
        # What was refused holds up nobody.
        run("nbdinfo", self.uri())
        pool.stop()
        pool.check()

    def test_an_encrypted_key_is_refused_with_the_remedy(self):
        for number, form in enumerate([["pkcs8", "-topk8"], ["ec", "-aes128"]]):
            pki = self.authority.without(os.path.join(self.folder, f"encrypted-{number}"), "server-key.pem")
            run("openssl", *form, "-in", self.authority.file("server-key.pem"), "-out", os.path.join(pki, "server-key.pem"), "-passout", "pass:secret")
            done = onefold("serve", os.path.join(self.folder, "pool"), "--create", "--size", "64M", "--memory", "64M", "--listen", "tcp:127.0.0.1:0",
                           "--tls", "require", "--tls-certificates", pki, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("server-key.pem is encrypted with a pass phrase", done.stderr)
            self.assertIn("openssl pkey -in", done.stderr)

    def test_a_server_whose_certificate_has_expired_says_so(self):
        old = Authority(os.path.join(self.folder, "old"))
        for name in ["ca-cert.pem", "ca-key.pem"]:
            shutil.copy(self.authority.file(name), old.folder)
        old.sign("server", "-days", "-1").sign("client")
        pool = self.serve("--tls", "require", pki=old.folder)
        self.assertRegex(pool.said(), r"server-cert\.pem: the certificate has expired on \d{4}-\d\d-\d\d .*Renew it, and restart the server")
        self.refused(self.uri(old.folder))
        pool.stop()

    def test_offered_is_not_required(self):
        pool = self.serve("--tls", "on")
        for uri in [self.uri(), self.uri(scheme="nbd")]:
            self.assertIn("128M", run("nbdinfo", uri).stdout)
        self.assertIn("with TLS", run("nbdinfo", self.uri()).stdout)
        self.assertEqual(pool.status()["tls"], "on")

    def test_one_who_reads_nothing_and_one_who_says_nothing_hold_up_nobody(self):
        self.serve("--tls", "require")
        silent = socket.create_connection(("127.0.0.1", self.port))
        self.addCleanup(silent.close)
        stuck = nbd.NBD()
        stuck.set_uri_allow_local_file(True)
        stuck.connect_uri(self.uri())
        buffers = [nbd.Buffer(4 << 20) for _ in range(16)]
        for at, buffer in enumerate(buffers):
            stuck.aio_pread(buffer, at * (4 << 20))
        client = nbd.NBD()
        client.set_uri_allow_local_file(True)
        client.connect_uri(self.uri())
        for at in range(50):
            client.pwrite(bytes([at]) * BLOCK, at * BLOCK)
        client.flush()
        self.assertEqual([client.pread(1, at * BLOCK)[0] for at in range(50)], list(range(50)))
        client.shutdown()

    def begin(self):
        """A connection that has been told to begin TLS."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.addCleanup(client.close)
        client.recv(18, socket.MSG_WAITALL)
        client.sendall(START)
        client.recv(20, socket.MSG_WAITALL)
        return client

    def connected(self, volume="default"):
        client = nbd.NBD()
        client.set_uri_allow_local_file(True)
        client.connect_uri(self.uri().replace("default", volume))
        return client

    def test_handshakes_that_stand_still_lock_out_nobody(self):
        context = ssl.create_default_context(cafile=self.authority.file("ca-cert.pem"))

        def encrypted():
            return context.wrap_socket(self.begin(), server_hostname="localhost")

        for how, begin in [("--tls-verify-peer", self.begin), (None, encrypted)]:
            with self.subTest(verifies_peers=how):
                pool = self.serve("--tls", "require", *([how] if how else []), memory="256M")
                served = [self.connected() for _ in range(16)]
                silent = []
                for _ in range(130):
                    silent.append(begin())
                self.assertEqual({self.connected().get_size() for _ in range(20)}, {128 << 20})
                # Who had chosen an export kept its place.
                for client in served:
                    client.pwrite(bytes(BLOCK), 0)
                    client.shutdown()
                self.assertIn("its own was the oldest", pool.said())
                for client in silent:
                    client.close()
                pool.stop()

    def test_a_client_that_reads_nothing_loses_its_place_when_the_server_ends_it(self):
        pool = self.serve("--tls", "require")
        onefold("volume", "create", pool.path, "other", "--size", "128M")

        def sockets():
            folder = f"/proc/{pool.server.pid}/fd"
            return sum(os.readlink(os.path.join(folder, name)).startswith("socket:") for name in os.listdir(folder))

        def until(reached):
            deadline = time.time() + PATIENCE / 4
            while not reached():
                self.assertLess(time.time(), deadline)
                time.sleep(0.1)

        self.connected().shutdown()
        quiet = []
        until(lambda: quiet.append(sockets()) or len(quiet) > 9 and len(set(quiet[-10:])) == 1)
        stuck = self.connected("other")
        stuck.pwrite(os.urandom(4 << 20), 0)
        buffers = [nbd.Buffer(4 << 20) for _ in range(16)]
        for buffer in buffers:
            stuck.aio_pread(buffer, 0)
        # It has been sent all that its socket takes.
        waiting = []

        def is_full():
            count = fcntl.ioctl(stuck.aio_get_fd(), termios.FIONREAD, bytes(4))
            waiting.append(int.from_bytes(count, "little"))
            return len(waiting) > 9 and waiting[-1] > 0 and len(set(waiting[-10:])) == 1

        until(is_full)
        onefold("volume", "delete", pool.path, "other", "--force")
        until(lambda: sockets() == quiet[-1])
        pool.stop()

    def test_an_exclusive_volume_lets_in_one_certificate(self):
        pool = self.serve("--tls", "on", "--tls-verify-peer")
        onefold("volume", "set", pool.path, "default", "exclusive=on")
        second = Authority(os.path.join(self.folder, "second"))
        for name in ["ca-cert.pem", "ca-key.pem"]:
            shutil.copy(self.authority.file(name), second.folder)
        second.sign("client")
        first = [self.connected() for _ in range(2)]
        run("nbdcopy", self.uri(), "null:")
        self.refused(self.uri(second.folder))
        digest = run("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", self.authority.file("client-cert.pem")).stdout
        self.assertRegex(pool.said(), rf"WARN client \d+ .* was refused: .* is exclusive, and client \d+ .*certificate {digest.split('=')[1][:23]}\)")
        self.refused(self.uri(scheme="nbd"))
        for client in first:
            client.shutdown()
        run("nbdinfo", self.uri(second.folder))
        # Without a certificate each connection is a client of its own.
        bare = nbd.NBD()
        bare.connect_uri(self.uri(scheme="nbd"))
        self.refused(self.uri(scheme="nbd"))
        bare.shutdown()
        run("nbdinfo", self.uri(scheme="nbd"))

    def test_noise_where_tls_should_begin_ends_that_connection_only(self):
        pool = self.serve("--tls", "require")
        for behind in [b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096)]:
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
                self.assertEqual(client.recv(18, socket.MSG_WAITALL)[:8], b"NBDMAGIC")
                client.sendall(START)
                self.assertEqual(len(client.recv(20, socket.MSG_WAITALL)), 20)
                client.sendall(behind)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
            # More in the clear, before the answer: it may be somebody else's.
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
                client.recv(18, socket.MSG_WAITALL)
                client.sendall(START + START[4:])
                try:
                    while client.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        self.assertIn("sent more in the clear", pool.said())
        run("nbdinfo", self.uri())

    def test_a_client_with_tls_connects_again_and_sees_a_new_size(self):
        """Reads are in progress when the volume gets another size: each is answered, or its connection ended."""
        pool = self.serve("--tls", "require")

        def connect():
            client = nbd.NBD()
            client.set_uri_allow_local_file(True)
            client.connect_uri(self.uri())
            return client
        for size, idle in ((130 << 20, True), (132 << 20, False)):
            client = connect()
            client.pwrite(b"\7" * (1 << 20), 0)
            buffers = [nbd.Buffer(1 << 20) for _ in range(0 if idle else 16)]
            cookies = [client.aio_pread(buffer, 0) for buffer in buffers]
            onefold("volume", "resize", pool.path, "default", size, "--reconnect")
            answered = 0
            try:
                for cookie in cookies:
                    while not client.aio_command_completed(cookie):
                        client.poll(-1)
                    answered += 1
                while True:
                    client.pread(4096, 0)
            except nbd.Error:
                pass
            self.assertTrue(all(buffer.to_bytearray() == b"\7" * (1 << 20) for buffer in buffers[:answered]))
            again = connect()
            self.assertEqual(again.get_size(), size)
            again.shutdown()

    def test_a_restart_under_an_encrypted_client_loses_nothing(self):
        pool = self.serve("--tls", "require")
        bridge_socket = os.path.join(self.folder, "bridge.sock")
        bridge = subprocess.Popen([
            "qemu-nbd", "--persistent", "--socket", bridge_socket, "--object", f"tls-creds-x509,id=t,endpoint=client,dir={self.pki}",
            "--image-opts", f"driver=nbd,server.type=inet,server.host=localhost,server.port={self.port},export=default,"
            "tls-creds=t,reconnect-delay=60"])
        self.addCleanup(bridge.wait)
        self.addCleanup(bridge.kill)
        client = nbd.NBD()
        for _ in range(200):
            if os.path.exists(bridge_socket):
                break
            time.sleep(0.05)
        client.connect_unix(bridge_socket)
        done = threading.Event()
        wrote = []

        def write():
            while not done.is_set():
                client.pwrite(len(wrote).to_bytes(4, "big") * (BLOCK // 4), len(wrote) % 1000 * BLOCK)
                wrote.append(1)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3):
            time.sleep(0.3)
            pool.stop()
            pool.serve("--listen", f"unix:{pool.path}.sock", "--listen", f"tcp:127.0.0.1:{self.port}", "--memory", "64M",
                       "--tls-certificates", self.pki, "--tls", "require", create=False)
        done.set()
        writer.join(timeout=PATIENCE)
        self.assertFalse(writer.is_alive())
        for number in range(max(0, len(wrote) - 1000), len(wrote)):
            self.assertEqual(client.pread(4, number % 1000 * BLOCK), number.to_bytes(4, "big"))
        client.shutdown()


@unittest.skipIf(shutil.which("openssl") is None, "openssl is missing")
class Refused(unittest.TestCase):
    def says(self, *arguments):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            done = subprocess.run([ONEFOLD, "serve", pool.path, *arguments], capture_output=True, text=True, timeout=60, check=False)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            return done.stderr

    def test_wrong_settings_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            pki = Authority(os.path.join(folder, "pki"))
            tcp = ["--listen", f"tcp:127.0.0.1:{free_port()}"]
            self.assertIn("--tls-certificates FOLDER", self.says(*tcp, "--tls", "require"))
            self.assertIn("--tls is off", self.says(*tcp, "--tls-certificates", pki.folder))
            self.assertIn("no tcp: listener", self.says("--tls", "on", "--tls-certificates", pki.folder))
            self.assertIn("server-cert.pem cannot be read", self.says(*tcp, "--tls", "on", "--tls-certificates", pki.folder))
            pki.sign("server")
            os.rename(pki.file("server-key.pem"), pki.file("kept"))
            self.assertIn("server-key.pem cannot be read", self.says(*tcp, "--tls", "on", "--tls-certificates", pki.folder))
            shutil.copy(pki.file("ca-key.pem"), pki.file("server-key.pem"))
            self.assertIn("cannot be used together", self.says(*tcp, "--tls", "on", "--tls-certificates", pki.folder))
            with open(pki.file("server-key.pem"), "w", encoding="utf-8") as file:
                file.write("nothing\n")
            self.assertIn("no private key", self.says(*tcp, "--tls", "on", "--tls-certificates", pki.folder))
            os.rename(pki.file("kept"), pki.file("server-key.pem"))
            os.remove(pki.file("ca-cert.pem"))
            wants_peers = self.says(*tcp, "--tls", "on", "--tls-certificates", pki.folder, "--tls-verify-peer")
            self.assertIn("ca-cert.pem cannot be read", wants_peers)


if __name__ == "__main__":
    unittest.main()
