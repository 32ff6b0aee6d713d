"""`onefold import` and `onefold export`: an image comes out as it went in, whoever has the pool; interruptions, refusals, figures."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from server import BLOCK, ONEFOLD, PATIENCE, Pool, onefold, run

MIB = 1 << 20


def make_image(path, size=24 * MIB + 512, seed=1):
    """Data, holes, zeroes that are written, the same blocks twice, an odd end."""
    generator = random.Random(seed)
    with open(path, "wb") as file:
        file.truncate(size)
        shared = generator.randbytes(2 * MIB)
        for at, data in [(0, shared), (5 * MIB + 4096, generator.randbytes(3 * MIB)), (10 * MIB, bytes(2 * MIB)), (16 * MIB, shared),
                         (size - 600, b"the end" * 80)]:
            file.seek(at)
            file.write(data)
    return path


def padded(path):
    """What a volume holds of an image: whole blocks."""
    with open(path, "rb") as file:
        data = file.read()
    return data + bytes(-len(data) % BLOCK)


def content(path):
    with open(path, "rb") as file:
        return file.read()


class Transfer(unittest.TestCase):
    def path(self, pool, name):
        return os.path.join(pool.folder, name)

    def round_trip(self, pool):
        image, out = make_image(self.path(pool, "in.raw")), self.path(pool, "out.raw")
        report = json.loads(onefold("import", pool.path, "disk", image, "--json").stdout)
        self.assertEqual((report["format"], report["size_bytes"], report["verified"]), ("raw", len(padded(image)), True))
        # What stands twice in the image is stored once, or is left where `select` writes it again.
        self.assertGreater(report["new_blocks"], 5 * MIB // BLOCK)
        text = onefold("export", pool.path, "disk", out).stdout
        self.assertIn("every block was read back and compared", text)
        self.assertEqual(content(out), padded(image))
        self.assertLess(os.stat(out).st_blocks * 512, 12 * MIB, "holes stay holes")
        # Again into the same pool: everything is known.
        text = onefold("import", pool.path, "again", image).stdout
        self.assertIn("because the pool had it", text)
        self.assertIn("imported", text)

    def has_begun(self, pool):
        """Whether something is written to the volume of a server that lives as long as its import."""
        if not os.path.exists(pool.path + ".ctl"):
            return False
        done = onefold("status", pool.path, "--json", check=False)
        volumes = json.loads(done.stdout)["volumes"] if done.returncode == 0 else []
        return any(volume["name"] == "disk" and volume["writes"]["requests"] > 0 for volume in volumes)

    def test_an_image_comes_out_as_it_went_in_while_the_pool_is_served(self):
        with Pool("128M").serve("--memory", "64M") as pool:
            self.round_trip(pool)
            pool.stop()
            pool.check()

    def test_and_while_nobody_serves_it(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            self.round_trip(pool)
            self.assertFalse([name for name in os.listdir(pool.folder) if name.endswith((".sock", ".ctl"))])
            pool.check()
            self.assertFalse(pool.status()["needs_recovery"])
            before = content(pool.path)
            onefold("export", pool.path, "again", self.path(pool, "other.raw"))
            self.assertEqual(content(pool.path), before, "an export writes nothing to a pool that was closed cleanly")

    def test_and_over_tcp(self):
        with Pool("128M") as pool:
            pool.server = subprocess.Popen([ONEFOLD, "serve", pool.path, "--create", "--size", "64M", "--memory", "64M", "--listen",
                                            "tcp:127.0.0.1:18131"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.time() + PATIENCE
            while run("nbdinfo", "--size", "nbd://127.0.0.1:18131/default", check=False).returncode and time.time() < deadline:
                time.sleep(0.05)
            image, out = make_image(self.path(pool, "in.raw")), self.path(pool, "out")
            onefold("import", pool.path, "disk", image)
            onefold("export", pool.path, "disk", out)
            self.assertEqual(content(out), padded(image))

    def test_an_import_says_what_was_data_and_what_was_there(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            image = self.path(pool, "in.raw")
            with open(image, "wb") as file:
                file.truncate(8 * MIB)
                # Blocks of data between zeroes: a chunk is neither.
                for at in range(0, 4 * MIB, 8 * BLOCK):
                    file.seek(at)
                    file.write(random.Random(at).randbytes(BLOCK))
            text = onefold("import", pool.path, "disk", image).stdout
            self.assertIn("data:      512 KiB; 7.5 MiB are zeroes or holes, which take no space", text)
            self.assertNotIn("there already", text)
            self.assertNotIn("in place", text)
            text = onefold("import", pool.path, "disk", image, "--overwrite").stdout
            self.assertIn("in place:  512 KiB of the data were in this volume already", text)
            report = json.loads(onefold("import", pool.path, "other", image, "--json").stdout)
            self.assertEqual((report["data_bytes"], report["zero_bytes"], report["in_place_bytes"]), (512 << 10, 15 * MIB // 2, 0))

    def test_an_export_has_the_size_that_is_asked_for(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            image = make_image(self.path(pool, "in.raw"))
            onefold("import", pool.path, "disk", image)
            for name in ["out.raw", "out.qcow2"]:
                out, back = self.path(pool, name), self.path(pool, "back")
                onefold("export", pool.path, "disk", out, "--size", "64M")
                run("qemu-img", "convert", "-O", "raw", out, back)
                self.assertEqual(content(back), padded(image).ljust(64 * MIB, b"\0"), name)
            refused = onefold("export", pool.path, "disk", self.path(pool, "small"), "--size", "8M", check=False)
            self.assertIn("a part of a volume is no image of it", refused.stderr)
            self.assertFalse(os.path.exists(self.path(pool, "small")))
            # What lies behind an image, as on a device that is longer.
            longer, data = self.path(pool, "longer"), padded(image)
            onefold("export", pool.path, "disk", longer)
            with open(longer, "ab") as file:
                file.write(b"old" * MIB)
            text = onefold("export", pool.path, "disk", longer, "--resume").stdout
            self.assertIn(f"untouched: 3 MiB behind the image keep what they held; --size {len(data) + 3 * MIB} makes them zeroes", text)
            self.assertEqual(content(longer), data + b"old" * MIB)

    def test_imports_at_once_wait_for_each_other(self):
        """Without a server each of them serves the pool for its own time; all but one failed."""
        with Pool("256M") as pool:
            onefold("create", pool.path, "--capacity", "256M")
            images = {f"disk-{number}": make_image(self.path(pool, f"in-{number}"), seed=number) for number in range(6)}
            imports = [subprocess.Popen([ONEFOLD, "import", pool.path, name, image], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True) for name, image in images.items()]
            # Other commands go through whoever has the pool, or wait for it.
            for number in range(6):
                onefold("volume", "create", pool.path, f"other-{number}", "--size", "4M")
            for command in imports:
                said = command.communicate(timeout=PATIENCE)[1]
                self.assertEqual(command.returncode, 0, said)
            for name, image in images.items():
                out = self.path(pool, "out")
                onefold("export", pool.path, name, out)
                self.assertEqual(content(out), padded(image))
                os.remove(out)
            pool.check()

    def test_other_formats_go_through_qemu(self):
        with Pool("256M") as pool:
            onefold("create", pool.path, "--capacity", "256M")
            raw = make_image(self.path(pool, "in.raw"), 24 * MIB)
            for extension in ["qcow2", "vmdk", "vdi", "vhdx"]:
                image, out = self.path(pool, f"in.{extension}"), self.path(pool, f"out.{extension}")
                run("qemu-img", "convert", "-f", "raw", "-O", extension, raw, image)
                report = json.loads(onefold("import", pool.path, extension, image, "--json").stdout)
                self.assertEqual((report["format"], report["size_bytes"]), (extension, 24 * MIB))
                onefold("export", pool.path, extension, out)
                run("qemu-img", "compare", "-f", extension, "-F", "raw", out, raw)
                run("qemu-img", "check", "-f", extension, out, check=extension in ("qcow2", "vdi"))
            # A name says nothing of what is read; --format does.
            disguised = self.path(pool, "disguised.img")
            os.rename(self.path(pool, "in.qcow2"), disguised)
            self.assertIn("(qcow2)", onefold("import", pool.path, "disguised", disguised).stdout)
            onefold("import", pool.path, "as-it-is", disguised, "--format", "raw")
            out = self.path(pool, "as-it-is")
            onefold("export", pool.path, "as-it-is", out)
            self.assertEqual(content(out), padded(disguised))
            pool.check()

    def test_an_image_that_is_imported_again_takes_no_space_whoever_has_the_pool(self):
        """Each opening began with an empty index, and the import was over before it was filled. What comes before the image makes that take a while."""
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "2G")
            image = self.path(pool, "in.raw")

            def write(size):
                with open(image, "wb") as file:
                    for _ in range(size // MIB):
                        file.write(os.urandom(MIB))

            def imported(name):
                return json.loads(onefold("import", pool.path, name, image, "--json").stdout)["new_blocks"]

            write(1024 * MIB)
            imported("before")
            write(8 * MIB)
            self.assertEqual([imported(f"v{number}") for number in range(3)], [8 * MIB // BLOCK, 0, 0])
            onefold("set", pool.path, "policy", "full")
            self.assertEqual(imported("full"), 0)
            pool.serve("--memory", "64M", create=False)
            self.assertEqual(imported("served"), 0)
            self.assertEqual(pool.status()["index_filled_percent"], 100)
            deadline = time.time() + PATIENCE
            while "the index is complete" not in pool.said():
                self.assertLess(time.time(), deadline, pool.said())
                time.sleep(0.05)
            pool.stop()

    def test_holes_cost_nothing_for_their_length(self):
        """8 TiB with three blocks of data: a look at each MiB would take an hour, and `run` waits for ten minutes."""
        size, data = 8 << 40, {0: b"begin", (5 << 40) + 12345: b"middle", (8 << 40) - 7: b"the end"}
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            image, out, packed = (self.path(pool, name) for name in ["in.raw", "out.raw", "out.qcow2"])
            with open(image, "wb") as file:
                file.truncate(size)
                for at, text in data.items():
                    file.seek(at)
                    file.write(text)
            report = json.loads(onefold("import", pool.path, "disk", image, "--json").stdout)
            self.assertEqual((report["size_bytes"], report["data_bytes"], report["sent_bytes"]), (size, 3 * BLOCK, 3 * BLOCK))
            onefold("import", pool.path, "disk", image, "--resume")
            onefold("import", pool.path, "disk", image, "--overwrite")
            onefold("export", pool.path, "disk", out)
            onefold("export", pool.path, "disk", packed)
            report = json.loads(onefold("import", pool.path, "packed", packed, "--json").stdout)
            self.assertEqual((report["format"], report["data_bytes"]), ("qcow2", 3 * BLOCK))
            onefold("export", pool.path, "packed", out, "--overwrite")
            with open(out, "rb") as file:
                self.assertEqual(file.seek(0, os.SEEK_END), size)
                for at, text in data.items():
                    file.seek(at)
                    self.assertEqual(file.read(len(text)), text)
            self.assertLess(os.stat(out).st_blocks * 512, MIB)

    def test_what_is_packed_is_no_image(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw = make_image(self.path(pool, "in.raw"))
            packers = {"gz": "gzip -k", "xz": "xz -k0", "zst": "zstd -qk", "bz2": "bzip2 -k", "zip": "zip -q in.raw.zip", "tar": "tar cf in.raw.tar"}
            for ending, packer in packers.items():
                if shutil.which(packer.split()[0]) is None:
                    continue
                run(*packer.split(), "in.raw", cwd=pool.folder)
                packed = f"{raw}.{ending}"
                disguised = self.path(pool, "disguised.img")
                os.rename(packed, disguised)
                done = onefold("import", pool.path, ending, disguised, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""), ending)
                self.assertIn("--format raw", done.stderr)
            # The last one, as it is; and an image that is no whole number of blocks.
            onefold("import", pool.path, "packed", disguised, "--format", "raw")
            self.assertIn("rounded:   25166336 bytes are no whole blocks: the volume has 3584 bytes", onefold("import", pool.path, "odd", raw).stdout)

    def test_an_image_that_was_cut_short_is_refused(self):
        """QEMU reads zeroes behind the end, and they were "read back and compared"."""
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw, out = self.path(pool, "in.raw"), self.path(pool, "out.raw")
            with open(raw, "wb") as file:
                file.write(os.urandom(16 * MIB))
            for format in ["qcow2", "vmdk", "vdi", "vhdx", "qed", "parallels", "vpc"]:
                image = self.path(pool, f"in-{format}")
                if run("qemu-img", "convert", "-f", "raw", "-O", format, raw, image, check=False).returncode:
                    continue
                onefold("import", pool.path, f"whole-{format}", image)
                os.truncate(image, os.path.getsize(image) // 2)
                done = onefold("import", pool.path, format, image, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""), format)
                self.assertIn("in-" + format, done.stderr)
            self.assertEqual([v for v in pool.status()["volumes"] if not v["name"].startswith("whole-")], [])
            image = self.path(pool, "in-qcow2")
            self.assertIn("--allow damaged", onefold("import", pool.path, "qcow2", image, check=False).stderr)
            onefold("import", pool.path, "qcow2", image, "--allow", "damaged")
            onefold("export", pool.path, "whole-qcow2", out)
            self.assertEqual(content(out), content(raw))

    def test_flipped_bytes_of_a_header_end_in_an_answer(self):
        chance = random.Random(3)
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw, image, flipped = make_image(self.path(pool, "in.raw")), self.path(pool, "in"), self.path(pool, "flipped")
            for number in range(12):
                format = chance.choice(["qcow2", "vmdk", "vdi", "vhdx"])
                run("qemu-img", "convert", "-f", "raw", "-O", format, raw, image)
                shutil.copyfile(image, flipped)
                with open(flipped, "r+b") as file:
                    for _ in range(4):
                        at = chance.randrange(2048)
                        file.seek(at)
                        byte = file.read(1)[0]
                        file.seek(at)
                        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
                done = onefold("import", pool.path, "disk", flipped, "--overwrite", check=False)
                self.assertIn(done.returncode, (0, 1), (format, done.stderr))
                self.assertNotIn("panicked", done.stderr)

    def test_an_image_that_names_other_files_is_refused(self):
        """Whoever hands in an image would choose which files of the host are read into it."""
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            secret = make_image(self.path(pool, "secret.raw"), 24 * MIB)
            backed, data, flat = (self.path(pool, name) for name in ["backed.qcow2", "data.qcow2", "flat.vmdk"])
            run("qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", backed)
            run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-o", f"data_file={self.path(pool, 'data.bin')}", secret, data)
            run("qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat", secret, flat)
            for image, named in [(backed, "secret.raw"), (data, "data.bin"), (flat, "flat-flat.vmdk")]:
                name = os.path.basename(image)
                done = onefold("import", pool.path, name, image, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""), name)
                self.assertIn("--allow other-files", done.stderr)
                self.assertIn(named, done.stderr)
                onefold("import", pool.path, name, image, "--allow", "other-files")
                onefold("export", pool.path, name, self.path(pool, "out.raw"), "--overwrite")
                self.assertEqual(content(self.path(pool, "out.raw")), content(secret))

    def test_an_image_that_qemu_may_write_is_refused(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw, socket = make_image(self.path(pool, "in.raw")), self.path(pool, "qemu.sock")
            qemu = subprocess.Popen(["qemu-nbd", "--persistent", "-f", "raw", "--socket", socket, raw])
            try:
                while run("nbdinfo", "--size", f"nbd+unix:///?socket={socket}", check=False).returncode:
                    self.assertIsNone(qemu.poll())
                done = onefold("import", pool.path, "disk", raw, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("--allow in-use", done.stderr)
                onefold("import", pool.path, "disk", raw, "--allow", "in-use")
            finally:
                qemu.terminate()
                qemu.wait()
            onefold("import", pool.path, "again", raw)

    def test_a_fixed_vhd_is_no_raw_image(self):
        """Its mark is at its end."""
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw, image = make_image(self.path(pool, "in.raw"), 24 * MIB), self.path(pool, "in.img")
            run("qemu-img", "convert", "-f", "raw", "-O", "vpc", "-o", "subformat=fixed,force_size=on", raw, image)
            self.assertIn("(vpc)", onefold("import", pool.path, "disk", image).stdout)
            onefold("export", pool.path, "disk", self.path(pool, "out.raw"))
            self.assertEqual(content(self.path(pool, "out.raw"))[:24 * MIB], content(raw))

    def test_a_parallels_image_is_no_raw_one(self):
        with Pool("128M") as pool:
            onefold("create", pool.path, "--capacity", "128M")
            raw, image, out = make_image(self.path(pool, "in.raw"), 24 * MIB), self.path(pool, "in.hds"), self.path(pool, "out.raw")
            if run("qemu-img", "convert", "-f", "raw", "-O", "parallels", raw, image, check=False).returncode:
                self.skipTest("this qemu-img makes no Parallels images")
            self.assertIn("(parallels)", onefold("import", pool.path, "disk", image).stdout)
            onefold("export", pool.path, "disk", out)
            self.assertEqual(content(out)[:24 * MIB], content(raw))

    def test_an_import_that_ended_in_the_middle_goes_on(self):
        for served in [False, True]:
            with Pool("256M") as pool:
                onefold("create", pool.path, "--capacity", "256M")
                onefold("volume", "create", pool.path, "disk", "--size", "64M")
                if served:
                    onefold("volume", "create", pool.path, "default", "--size", "256M")
                    pool.serve("--memory", "64M")
                image, part = self.path(pool, "whole.raw"), self.path(pool, "part.raw")
                for path, size in [(image, 64 * MIB), (part, 40 * MIB)]:
                    with open(path, "wb") as file:
                        file.write(random.Random(2).randbytes(64 * MIB)[:size])
                onefold("import", pool.path, "disk", part)
                refused = onefold("import", pool.path, "disk", image, check=False)
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn("--resume goes on", refused.stderr)
                report = json.loads(onefold("import", pool.path, "disk", image, "--resume", "--json").stdout)
                self.assertEqual((report["data_bytes"], report["sent_bytes"]), (64 * MIB, 24 * MIB))
                out = self.path(pool, "out")
                onefold("export", pool.path, "disk", out)
                self.assertEqual(content(out), content(image))

    def test_an_interruption_leaves_a_sound_pool_and_says_how_to_go_on(self):
        with Pool("1G") as pool:
            onefold("create", pool.path, "--capacity", "1G")
            image = self.path(pool, "in.raw")
            with open(image, "wb") as file:
                for _ in range(8):
                    file.write(os.urandom(64 * MIB))
            for _ in range(5):
                client = subprocess.Popen([ONEFOLD, "import", pool.path, "disk", image, "--overwrite"], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True)
                while client.poll() is None and not self.has_begun(pool):
                    time.sleep(0.01)
                client.send_signal(signal.SIGINT)
                said = client.communicate(timeout=60)[1]
                pool.check()
                if client.returncode == 1 and "--resume" in said:
                    break
                onefold("volume", "delete", pool.path, "disk", check=False)
            else:
                self.skipTest(f"the import was faster than every interruption: {said}")
            onefold("import", pool.path, "disk", image, "--resume")
            out = self.path(pool, "out")
            onefold("export", pool.path, "disk", out)
            run("cmp", image, out)

    def test_what_is_there_is_not_overwritten_by_accident(self):
        with Pool("128M").serve("--memory", "64M") as pool:
            one, two = make_image(self.path(pool, "one"), seed=1), make_image(self.path(pool, "two"), seed=2)
            onefold("import", pool.path, "disk", one)
            for arguments, words in [([], "holds data already"), (["--resume"], "not from this image")]:
                done = onefold("import", pool.path, "disk", two, *arguments, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
            onefold("import", pool.path, "disk", two, "--overwrite")
            out = self.path(pool, "out")
            onefold("export", pool.path, "disk", out)
            self.assertEqual(content(out), padded(two))
            done = onefold("export", pool.path, "disk", out, check=False)
            self.assertIn("exists: --overwrite", done.stderr)
            with open(out, "r+b") as file:
                file.truncate(8 * MIB)
                file.truncate(len(padded(two)))
            report = json.loads(onefold("export", pool.path, "disk", out, "--resume", "--json").stdout)
            self.assertTrue(0 < report["sent_bytes"] < report["data_bytes"])
            self.assertEqual(content(out), padded(two))
            pool.stop()

    def test_errors_say_what_to_do(self):
        import nbd

        with Pool("128M").serve("--memory", "64M") as pool:
            image = make_image(self.path(pool, "in.raw"))
            onefold("volume", "create", pool.path, "small", "--size", "1M")
            onefold("volume", "create", pool.path, "locked", "--size", "64M")
            onefold("volume", "set", pool.path, "locked", "read-only=on")
            broken = self.path(pool, "broken.qcow2")
            with open(broken, "wb") as file:
                file.write(b"QFI\xfb" + bytes(1000))
            for arguments, words in [
                (["import", pool.path, "small", image], "onefold volume resize"),
                (["import", pool.path, "locked", image], "read-only=off"),
                (["import", pool.path, "a bad name", image], "name"),
                (["import", pool.path, "disk", image + ".missing"], "cannot open the image"),
                (["import", pool.path, "disk", broken], "as qcow2"),
                (["export", pool.path, "missing", self.path(pool, "out")], "there is no volume 'missing'"),
                (["export", pool.path, "small", self.path(pool, "out.qcow")], "--format"),
                (["export", pool.path, "small", pool.folder], "is a directory: name a file"),
                (["export", pool.path + ".not", "small", self.path(pool, "out")], ".not"),
            ]:
                done = onefold(*arguments, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
                self.assertIn(words, done.stderr)
                self.assertNotIn("panicked", done.stderr)
            done = subprocess.run([ONEFOLD, "import", pool.path, "disk", broken], capture_output=True, text=True, env={"PATH": pool.folder})
            self.assertIn("qemu-utils", done.stderr)
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            done = onefold("import", pool.path, "default", image, check=False)
            self.assertIn("is in use by 1 client", done.stderr)
            client.shutdown()
            pool.stop()

    def test_a_full_pool_ends_an_import_and_the_rest_stays_as_it_was(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "16M")
            image = self.path(pool, "in.raw")
            with open(image, "wb") as file:
                file.write(os.urandom(64 * MIB))
            done = onefold("import", pool.path, "disk", image, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no space", done.stderr)
            pool.check()


if __name__ == "__main__":
    unittest.main()
