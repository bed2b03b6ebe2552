"""The outputs that a notebook keeps in the repository: what a code-hosting page can show, small, and without names
of the machine that executed it. execute-notebook --commit uses it; environment/testrun tests the notebooks."""
import base64
import getpass
import hashlib
import html.parser
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile

try:
    from PIL import Image
except ImportError:  # only --commit needs it
    Image = None

WIDTH = 800  # pixels of a figure
COLORS = (64, 32, 24, 16)  # of a figure: the most with which the notebook keeps to LIMIT
ROWS = 20  # of a table
LIMIT = 300_000  # bytes of a notebook, as in environment/testrun/committed_test.go
LIMIT_ALL = 2_000_000  # bytes of all notebooks

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Refused(Exception):
    """Why a notebook cannot be committed."""


def sources(cells):
    """The hash of the cells' types and sources."""
    return hashlib.sha256("".join(c["cell_type"] + "\0" + join(c["source"]) + "\0" for c in cells).encode()).hexdigest()


def join(text):
    """A multi-line string of nbformat, which is one string or a list of lines."""
    return text if isinstance(text, str) else "".join(text)


class Names:
    """Replaces what names this machine or its user."""

    def __init__(self, folders, code):
        """folders maps folders to what is shown in their place; code is the notebook's sources."""
        paths = dict(folders)
        for path, shown in folders.items():
            paths.setdefault(os.path.realpath(path), shown)
        self.paths = sorted(paths.items(), key=lambda pair: -len(pair[0]))
        # A name that the notebook's own code contains, such as "server", is an ordinary word.
        words = {socket.gethostname(): "host", getpass.getuser(): "user"}
        self.words = {w: shown for w, shown in words.items() if w not in ("root", "localhost") and w not in code}

    def replace(self, text):
        for path, shown in self.paths:
            text = re.sub(r"(?<![\w.~-])" + re.escape(path) + r"(?![\w-])", shown, text)
        for word, shown in self.words.items():
            text = re.sub(r"\b" + re.escape(word) + r"\b", shown, text)
        return re.sub(r"(~/temp/[\w.-]*?)\d{6,}", r"\g<1>1", text)  # random, differs in each run


class Page(html.parser.HTMLParser):
    """Splits HTML into plain HTML, which a code-hosting page shows, and images."""

    KEPT = set("table thead tbody tr th td p br ul ol li h1 h2 h3 h4 h5 h6 pre code b strong i em small sub sup".split())
    LEFT_OUT = ("script", "style")
    BLOCKS = ("div", "figure", "figcaption", "details")

    def __init__(self, text):
        super().__init__()
        self.pieces = []  # ("html", text) or ("image", alternative text, SVG)
        self.written, self.hidden, self.head, self.rows = "", "", False, 0
        self.feed(text)
        self.close()
        self.end_piece()

    def end_piece(self):
        text = re.sub(r"(<br>|\s)+$", "", re.sub(r"^(<br>|\s)+", "", self.written))
        if re.sub(r"<[^>]*>", "", text).strip():
            self.pieces.append(("html", text + "\n"))
        self.written = ""

    def write(self, text):
        if not self.hidden and self.rows <= ROWS:
            self.written += text

    def handle_starttag(self, tag, attributes):
        if tag in self.LEFT_OUT:
            self.hidden = tag
        elif tag == "table":
            self.head, self.rows = False, 0
        elif tag == "thead":
            self.head = True
        elif tag == "tr" and not self.head:
            self.rows += 1
        elif tag == "img":
            image = dict(attributes)
            kind, _, data = image.get("src", "").partition(";base64,")
            if kind != "data:image/svg+xml":
                raise Refused("an output shows the image %.60s, which only a notebook can show" % image.get("src"))
            self.end_piece()
            self.pieces.append(("image", image.get("alt", ""), base64.b64decode(data).decode()))
        if tag in self.KEPT:
            self.write("<%s>" % tag)
        elif tag in self.BLOCKS and self.written:
            self.write("<br>")

    def handle_endtag(self, tag):
        if tag == self.hidden:
            self.hidden = ""
        elif tag == "thead":
            self.head = False
        elif tag == "summary":
            self.write(": ")
        if tag == "table":
            more, self.rows = self.rows - ROWS, 0
            self.written += "</table>\n" + ("<p>%d more rows: run the cell to see them</p>" % more if more > 0 else "")
        elif tag in self.KEPT and tag != "br":
            self.write("</%s>" % tag)

    def handle_data(self, text):
        self.write(text.replace("&", "&amp;").replace("<", "&lt;"))


def shorten(text):
    """The text of a table with at most ROWS rows."""
    lines = text.split("\n")
    if len(lines) <= ROWS + 6:  # a heading, and notes below the table
        return text
    return "\n".join(lines[: ROWS + 1] + ["… %d more lines: run the cell to see them" % (len(lines) - ROWS - 1)])


def kept_outputs(outputs, names):
    """The outputs of a cell in the form that is committed. Drawings are still SVG."""
    kept = []
    for out in outputs:
        if out["output_type"] == "stream":
            if out["name"] == "stderr":
                raise Refused("it wrote to stderr: " + out["text"].strip())
            if kept and kept[-1]["output_type"] == "stream":
                kept[-1]["text"] += out["text"]
            else:
                kept.append({"name": "stdout", "output_type": "stream", "text": out["text"]})
            continue
        bundles = kept_formats(dict(out["data"]), names)
        for i, data in enumerate(bundles):
            one = {"data": data, "metadata": {}, "output_type": "display_data"}
            if i == 0 and out["output_type"] == "execute_result":
                one = {"data": data, "execution_count": out["execution_count"], "metadata": {}, "output_type": "execute_result"}
            kept.append(one)
    for out in kept:
        if out["output_type"] == "stream":
            out["text"] = names.replace(plain(out["text"]))
    return kept


def plain(text):
    """Text without colours; of a line that was drawn over, only its last state."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)


def kept_formats(data, names):
    """One bundle of formats for each part of an output: pages show an output's HTML in place of its image."""
    data.pop("application/javascript", None)
    text = names.replace(plain(data.pop("text/plain", "")))
    page, svg = data.pop("text/html", ""), data.pop("image/svg+xml", "")
    pieces = Page(page).pieces if page else []
    if svg and not any(p[0] == "image" for p in pieces):
        pieces = [("image", text, svg)]
    bundles = []
    for piece in pieces:
        if piece[0] == "image":
            bundles.append({"image/png": names.replace(piece[2]), "text/plain": names.replace(piece[1])})
        else:
            bundles.append({"text/html": names.replace(piece[1])})
            if len(pieces) == 1:
                bundles[0]["text/plain"] = shorten(text)
    if not bundles:
        bundles = [{}]
        if text:
            bundles[0]["text/plain"] = text
    for kind, value in data.items():  # of a value's own formats, such as a photo, Markdown and JSON
        if kind == "image/png":
            bundles[0][kind] = reduce(base64.b64decode(value), COLORS[0])
        elif isinstance(value, str):
            bundles[0][kind] = names.replace(value)
        else:
            bundles[0][kind] = json.loads(names.replace(json.dumps(value)))
    return bundles


def draw(drawings):
    """The pixels of SVG images as PNG files of WIDTH pixels, drawn by a browser."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    images = "".join('<img src="data:image/svg+xml;base64,%s">' % base64.b64encode(d.encode()).decode() for d in drawings)
    page = """<!doctype html>%s<script>onload = () => {
        for (const image of document.querySelectorAll('img')) {
            const canvas = document.createElement('canvas'), context = canvas.getContext('2d');
            canvas.width = %d;
            canvas.height = Math.round(%d * image.naturalHeight / image.naturalWidth);
            context.fillStyle = '#fff';
            context.fillRect(0, 0, canvas.width, canvas.height);
            context.drawImage(image, 0, 0, canvas.width, canvas.height);
            const line = document.createElement('pre');
            line.textContent = canvas.toDataURL();
            image.replaceWith(line);
        }
    }</script>""" % (images, WIDTH, WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.html")
        with open(path, "w", encoding="utf-8") as f:
            f.write(page)
        done = subprocess.run(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + folder, "--virtual-time-budget=60000", "--dump-dom", path],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
        )
    drawn = re.findall(r"<pre>data:image/png;base64,([^<]*)</pre>", done.stdout)
    if len(drawn) != len(drawings):
        raise Refused("%s drew %d of %d figures:\n%s" % (program, len(drawn), len(drawings), done.stderr))
    return [base64.b64decode(d) for d in drawn]


def reduce(png, most):
    """A PNG file of at most WIDTH pixels and most colors, in base64.

    Each next color of the palette is the one whose pixels are farthest from the palette together, so that the
    color of a short line stays. Pillow's own palettes lose it among the shades of text.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.LANCZOS)
    counts = {color: count for count, color in image.getcolors(1 << 24)}
    distances, nearest, palette = dict.fromkeys(counts, 1 << 18), {}, []
    while len(palette) < most and any(distances.values()):
        new = max(counts, key=lambda c: counts[c] * distances[c])
        for c in counts:
            distance = sum((a - b) ** 2 for a, b in zip(c, new))
            if distance < distances[c]:
                distances[c], nearest[c] = distance, len(palette)
        palette.append(new)
    reduced = Image.new("P", image.size)
    reduced.putpalette([value for color in palette for value in color])
    reduced.putdata([nearest[c] for c in image.getdata()])
    b = io.BytesIO()
    reduced.save(b, "PNG", optimize=True)
    return base64.b64encode(b.getvalue()).decode()


def missing():
    """The Debian packages that commit needs and this machine lacks."""
    return ([] if any(map(shutil.which, BROWSERS)) else ["chromium", "fonts-liberation"]) + ([] if Image else ["python3-pil"])


def commit(path, executed, root, folders):
    """Writes the outputs of executed, an executed copy of the notebook at path, into that notebook, and returns its text."""
    with open(path, encoding="utf-8") as f:
        nb = json.load(f)
    names = Names(folders, "".join(join(c["source"]) for c in nb["cells"]))
    drawings = []
    for number, (cell, ran) in enumerate(zip(nb["cells"], executed["cells"]), 1):
        if cell["cell_type"] != "code":
            continue
        try:
            cell["outputs"] = kept_outputs(ran["outputs"], names)
        except Refused as err:
            raise Refused("cell %d: %s" % (number, err)) from None
        cell["execution_count"] = ran["execution_count"]
        drawings += [o["data"] for o in cell["outputs"] if "<svg" in o.get("data", {}).get("image/png", "")]
    for cell in nb["cells"]:
        for out in cell.get("outputs", []):
            data = out.get("data", {})
            for owner, key in ((out, "text"), (data, "text/html"), (data, "text/plain"), (data, "text/markdown")):
                if key in owner:
                    owner[key] = owner[key].splitlines(True)
    nb["metadata"]["lockstep"] = {"sources": sources(nb["cells"])}
    pngs = draw([d["image/png"] for d in drawings]) if drawings else []
    for colors in COLORS:
        for data, png in zip(drawings, pngs):
            data["image/png"] = reduce(png, colors)
        text = (json.dumps(nb, indent=1, ensure_ascii=False) + "\n").encode()
        if len(text) <= LIMIT:
            break
    check_size(path, nb, len(text), root)
    with open(path + ".next", "wb") as f:
        f.write(text)
    os.replace(path + ".next", path)
    return text.decode()


def check_size(path, nb, size, root):
    """Refuses a notebook of size bytes if it, or all notebooks together, are too large."""
    if size > LIMIT:
        sizes = {number: len(json.dumps(cell.get("outputs"))) for number, cell in enumerate(nb["cells"], 1)}
        largest = sorted(sizes, key=sizes.get)[-3:][::-1]
        raise Refused("the notebook would have %d kB, more than %d kB; the largest outputs are %s: show fewer figures or rows" % (
            size / 1000, LIMIT / 1000, ", ".join("%d kB in cell %d" % (sizes[n] / 1000, n) for n in largest)))
    others = 0
    for folder, _, files in os.walk(os.path.join(root, "notebooks")):
        if ".ipynb_checkpoints" not in folder:
            others += sum(os.path.getsize(os.path.join(folder, f)) for f in files if f.endswith(".ipynb") and not os.path.samefile(os.path.join(folder, f), path))
    if others + size > LIMIT_ALL:
        raise Refused("all notebooks together would have %d kB, more than %d kB: show fewer figures in one of them" % ((others + size) / 1000, LIMIT_ALL / 1000))
