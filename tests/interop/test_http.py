"""`serve --http`: the page, metrics, health and status in a browser's and a monitor's terms; and that no reader disturbs a client."""

import html.parser
import http.client
import json
import os
import re
import shutil
import socket
import tempfile
import time
import unittest

from server import ONEFOLD, PATIENCE, Pool, onefold, run
from test_metrics import documented, expected, parse

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


def page_of(pool):
    """Where the server says that its page is."""
    return re.search(r"(?:^page:  |\"pages\":\[\")http://([^\"\s]+)/", pool.said().rsplit("opening the pool", 1)[1], re.M)[1]


def get(address, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read().decode()


def raw(address, data):
    """What comes back for these bytes until the server closes."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer.decode(errors="replace")


class Figures(html.parser.HTMLParser):
    """The figures of a page by their paths."""

    def __init__(self, text):
        super().__init__()
        self.found = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "data":
            self.found[values["data-figure"]] = float(values["value"])


def figure(report, path):
    volume = re.fullmatch(r"volumes\[(.+)\]\.(.+)", path)
    if volume:
        report = next(entry for entry in report["volumes"] if entry["name"] == volume[1])
        path = volume[2]
    for step in path.split("."):
        report = report[step]
    return float(report)


def write(pool, volume="default", pattern=7, at="0", length="1M"):
    run("qemu-io", "-f", "raw", "-c", f"write -P {pattern} {at} {length}", "-c", f"read -P {pattern} {at} {length}", "-c",
        "flush", pool.uri(volume))


class Http(unittest.TestCase):
    def serve(self, *arguments, pool=None, create=True):
        pool = pool or Pool("64M")
        self.addCleanup(pool.__exit__)
        pool.serve("--memory", "64M", "--http", "127.0.0.1:0", *arguments, create=create)
        return pool, page_of(pool)

    def wait_for(self, condition, seconds=PATIENCE):
        deadline = time.time() + seconds
        while not condition():
            self.assertLess(time.time(), deadline, "not within the time for it")
            time.sleep(0.2)

    def test_page_metrics_and_status_have_the_figures_of_the_status(self):
        pool, address = self.serve()
        onefold("volume", "create", pool.path, "other.name", "--size", "16M", "--policy", "full")
        for volume in ["default", "other.name"]:
            write(pool, volume)
        onefold("scrub", pool.path, "--wait")
        pool.settled()
        self.wait_for(lambda: all(volume["shared_percent"] is not None for volume in pool.status()["volumes"]))
        time.sleep(2)
        report = pool.status()
        answer, text = get(address, "/status.json")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
        self.assertEqual(json.loads(text), report)
        self.assertEqual(text, onefold("status", pool.path, "--json").stdout)
        answer, text = get(address, "/metrics")
        self.assertIn("version=0.0.4", answer.headers["content-type"])
        types, samples = parse(text)
        self.assertEqual(types, {name: kind for name, (kind, _, _) in documented().items()})
        self.assertEqual(samples, expected(report, pool.path))
        answer, text = get(address)
        self.assertEqual(answer.status, 200)
        figures = Figures(text).found
        self.assertEqual(figures, {path: figure(report, path) for path in figures})
        for path in ["saving_percent", "writes.what_if.full.blocks", "volumes[other.name].shared_percent",
                     "latency.write.requests", "cache.index_bytes"]:
            self.assertIn(path, figures)
        self.assertGreater(figures["latency.write.requests"], 0)
        self.assertGreater(figures["volumes[other.name].shared_percent"], 0)
        pool.stop()

    def test_figures_are_no_older_than_two_seconds(self):
        pool, address = self.serve()
        self.assertEqual(Figures(get(address)[1]).found["latency.write.requests"], 0)
        write(pool)
        began = time.time()
        self.wait_for(lambda: Figures(get(address)[1]).found["latency.write.requests"] > 0)
        self.assertLess(time.time() - began, 2)
        pool.stop()

    def test_health_is_a_status_and_a_sentence(self):
        pool, address = self.serve()
        answer, text = get(address, "/healthz")
        self.assertEqual((answer.status, text), (200, "well\n"))
        onefold("volume", "create", pool.path, "large", "--size", "256M", "--policy", "native")
        with tempfile.NamedTemporaryFile() as image:
            image.write(os.urandom(60 << 20))
            image.flush()
            run("nbdcopy", image.name, pool.uri("large"))
        pool.settled()
        self.wait_for(lambda: "of the pool's capacity are in use" in get(address, "/healthz")[1])
        self.assertEqual(get(address, "/healthz")[0].status, 200, "it serves")
        with tempfile.NamedTemporaryFile() as image:
            image.write(os.urandom(80 << 20))
            image.flush()
            self.assertNotEqual(run("nbdcopy", image.name, pool.uri("large"), check=False).returncode, 0)
        self.wait_for(lambda: get(address, "/healthz")[0].status == 503)
        self.assertIn("writes of new blocks are refused: the pool's capacity is used up", get(address, "/healthz")[1])
        self.assertIn('class="health bad"', get(address)[1])
        pool.stop()

    def test_a_pool_that_is_served_read_only_on_purpose_is_well(self):
        pool, _ = self.serve()
        pool.stop()
        pool, address = self.serve("--read-only", pool=pool, create=False)
        answer, text = get(address, "/healthz")
        self.assertEqual((answer.status, text), (200, "well, served read-only\n"))
        pool.stop()

    def test_damage_is_not_well(self):
        pool, _ = self.serve()
        marker = os.urandom(4096)
        with tempfile.NamedTemporaryFile() as image:
            image.write(marker)
            image.flush()
            run("nbdcopy", image.name, pool.uri())
        pool.stop()
        with open(pool.path, "r+b") as file:
            data, at, places = file.read(), 0, []
            while (at := data.find(marker, at)) >= 0:
                places.append(at)
                at += 1
            for place in places:
                file.seek(place)
                file.write(b"damaged")
        pool, address = self.serve(pool=pool, create=False)
        self.assertEqual(get(address, "/healthz")[0].status, 200, "not seen yet")
        run("qemu-io", "-r", "-f", "raw", "-c", "read 0 4096", pool.uri(), check=False)
        self.wait_for(lambda: get(address, "/healthz")[0].status == 503)
        self.assertIn("1 block is damaged and not repaired", get(address, "/healthz")[1])
        self.assertIn("damaged: a block of data at byte", get(address)[1])
        pool.stop()

    def test_who_never_reads_or_never_sends_holds_up_nobody(self):
        pool, address = self.serve()
        host, port = address.rsplit(":", 1)
        lazy = []
        for number in range(150):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect((host, int(port)))
            if number % 3:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" if number % 3 == 1 else b"GET /met")
            lazy.append(connection)
        write(pool)
        for path in ["/", "/healthz", "/metrics"]:
            self.assertEqual(get(address, path)[0].status, 200)
        # Their time is over after ten seconds.
        open_files = lambda: len(os.listdir(f"/proc/{pool.server.pid}/fd"))
        before = open_files()
        self.wait_for(lambda: open_files() < before - 40, 20)
        for connection in lazy:
            connection.close()
        pool.stop()

    def test_many_readers_cost_the_reactor_no_more_than_one(self):
        pool, address = self.serve()
        began = time.time()
        # A page is made once of what the reactor has said, with the time of that in it.
        pages = [get(address)[1] for _ in range(200)]
        self.assertLessEqual(len(set(pages)), time.time() - began + 2)
        pool.stop()

    def test_odd_requests_get_clear_answers(self):
        pool, address = self.serve()
        answer, text = get(address, "/nothing?here")
        self.assertEqual((answer.status, text), (404, "there are /, /healthz, /metrics and /status.json\n"))
        for method in ["POST", "PUT", "DELETE", "BREW"]:
            answer, text = get(address, "/", method)
            self.assertEqual((answer.status, answer.headers["allow"]), (405, "GET, HEAD"))
            self.assertIn("nothing can be changed", text)
        answer, text = get(address, "/metrics", "HEAD")
        self.assertEqual((answer.status, text), (200, ""))
        self.assertGreater(int(answer.headers["content-length"]), 1000)
        answer, text = get(address, "/status.json", Host="evil.example")
        self.assertEqual(answer.status, 403)
        self.assertIn("--allow-remote", text)
        self.assertEqual(get(address, "/status.json?now=1")[0].status, 200)
        self.assertTrue(raw(address, b"GET /healthz HTTP/1.0\r\n\r\n").endswith("\r\n\r\nwell\n"))
        for data in [b"\0\0\0\0\r\n\r\n", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"NBDMAGIC" * 100, b"\x16\x03\x01" * 50]:
            answer = raw(address, data + b"\r\n\r\n")
            self.assertRegex(answer, r"^(HTTP/1\.[01] (400|505) |$)")
        answer = raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n")
        self.assertRegex(answer, r"^(HTTP/1\.1 431 |$)")
        answer = raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 1000 + b"\r\n")
        self.assertRegex(answer, r"^(HTTP/1\.1 431 |$)")
        self.assertEqual(get(address, "/healthz")[0].status, 200)
        self.assertNotIn("panic", pool.said())
        pool.stop()

    def test_pages_have_no_foreign_parts_and_no_names_as_markup(self):
        pool = Pool("64M")
        path = os.path.join(pool.folder, "<b onload=alert(1)>&\"'.onefold")
        pool.path = path
        pool, address = self.serve("--listen", f"unix:{pool.folder}/nbd.sock", pool=self.at(pool, f"{pool.folder}/nbd.sock"))
        answer, text = get(address)
        self.assertNotIn("<b onload", text)
        self.assertIn("&lt;b onload=alert(1)&gt;&amp;&quot;&#39;.onefold", text)
        self.assertIn("default-src 'none'", answer.headers["content-security-policy"])
        self.assertEqual(answer.headers["cache-control"], "no-store")
        whole = text + get(address, "/page.css")[1] + get(address, "/page.js")[1]
        self.assertEqual(re.findall(r"(?:https?:)?//[a-z]", whole), [], "nothing from elsewhere")
        types, _ = parse(get(address, "/metrics")[1])
        self.assertEqual(set(types), set(documented()))
        pool.stop()

    @staticmethod
    def at(pool, where):
        """The pool, whose clients connect there."""
        pool.uri = lambda volume="default": f"nbd+unix:///{volume}?socket={where}"
        return pool

    def test_addresses_that_cannot_be_are_refused_in_clear_words(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")

            def refusal(address, *more):
                done = run(ONEFOLD, "serve", pool.path, "--http", address, *more, check=False)
                return done.returncode, done.stderr

            for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"]:
                status, said = refusal(address)
                self.assertEqual(status, 1)
                self.assertRegex(said, r"--http \S+ \(\S+\) is reachable from other machines, and the page has no password")
                self.assertIn("add --allow-remote", said)
            for address in ["9180", "localhost", ":9180", "127.0.0.1:70000", "::1:80", "[::1:80", ""]:
                status, said = refusal(address)
                self.assertEqual(status, 2, address)
                self.assertIn("--http <HOST:PORT>", said)
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                status, said = refusal(f"127.0.0.1:{port}")
                self.assertEqual(status, 1)
                self.assertIn(f"cannot listen on --http 127.0.0.1:{port}", said)
                self.assertIn("another program listens there. Choose another port", said)
            pool.check()

    def test_other_machines_may_read_where_that_is_allowed(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--http", "0.0.0.0:0", "--allow-remote")
            address = page_of(pool).replace("0.0.0.0", "127.0.0.1")
            self.assertEqual(get(address, "/healthz", Host="monitor.example")[0].status, 200)
            pool.stop()

    def test_the_start_as_json_says_where_the_page_is(self):
        pool, _ = self.serve("--json")
        started = json.loads(next(line for line in pool.said().splitlines() if line.startswith("{")))
        self.assertEqual(get(started["pages"][0][7:-1], "/healthz")[0].status, 200)
        pool.stop()


@unittest.skipUnless(CHROMIUM, "no Chromium is installed: the page was not looked at in a browser")
class Browser(unittest.TestCase):
    def chromium(self, address, *arguments):
        with tempfile.TemporaryDirectory(prefix="onefold-chromium-") as profile:
            # Real time: the page fetches itself again meanwhile.
            return run(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                       f"--user-data-dir={profile}", *arguments, f"http://{address}/")

    def assert_no_console_errors(self, said):
        errors = [line for line in said.splitlines() if ":CONSOLE" in line]
        self.assertEqual(errors, [])

    def test_the_page_in_a_browser_has_the_figures_and_no_errors(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--http", "127.0.0.1:0")
            write(pool)
            pool.settled()
            time.sleep(1)
            report = pool.status()
            done = self.chromium(page_of(pool), "--virtual-time-budget=4000", "--dump-dom")
            figures = Figures(done.stdout).found
            self.assertGreater(figures["latency.write.requests"], 0)
            self.assertEqual(figures, {path: figure(report, path) for path in figures})
            self.assertIn('role="alert" hidden', done.stdout, "the script has got an answer each time")
            self.assert_no_console_errors(done.stderr)
            pool.stop()

    def test_pictures_are_made_in_both_widths_and_schemes(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--http", "127.0.0.1:0")
            write(pool)
            for width in (1280, 400):
                for scheme in ("light", "dark"):
                    picture = os.path.join(pool.folder, f"{width}-{scheme}.png")
                    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
                    done = self.chromium(page_of(pool), f"--window-size={width},1500", "--virtual-time-budget=3000",
                                         f"--screenshot={picture}", *dark)
                    self.assertGreater(os.path.getsize(picture), 10_000)
                    self.assert_no_console_errors(done.stderr)
            pool.stop()


if __name__ == "__main__":
    unittest.main()
