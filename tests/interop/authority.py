"""An authority of certificates for a test, or a measurement: a folder as qemu, nbdkit and onefold take it."""

import os
import shutil

from server import run

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """A folder with an authority's certificate and what it has signed."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(folder)
        run("openssl", "req", "-x509", *KEY, "-days", "2", "-subj", "/CN=Test authority", "-keyout", self.file("ca-key.pem"),
            "-out", self.file("ca-cert.pem"))

    def file(self, name):
        return os.path.join(self.folder, name)

    def sign(self, who, *validity):
        """A certificate of the server or a client, for localhost."""
        with open(self.file("extensions"), "w", encoding="utf-8") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        run("openssl", "req", *KEY, "-subj", f"/CN={who}", "-keyout", self.file(f"{who}-key.pem"), "-out", self.file("request"))
        run("openssl", "x509", "-req", "-in", self.file("request"), "-CA", self.file("ca-cert.pem"), "-CAkey", self.file("ca-key.pem"),
            "-CAcreateserial", "-extfile", self.file("extensions"), "-out", self.file(f"{who}-cert.pem"), *(validity or ["-days", "2"]))
        return self

    def without(self, folder, *names):
        """A copy of the folder that lacks these files."""
        shutil.copytree(self.folder, folder, ignore=lambda _, all_names: [name for name in all_names if name in names])
        return folder
