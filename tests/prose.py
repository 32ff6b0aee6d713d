"""The prose of a Markdown page: its words, its sentences, its periphrases. For tests/pages, which runs the examples.

Positions are kept: a page is masked character by character, never shortened, so that each finding has its line.
"""
import re

from words import ROUNDABOUT

# Code in a line, where its characters were: one word of a sentence, and no word of prose.
CODE = "\x01"
FENCE = re.compile(r"[ >]*(```|~~~)")
ITEM = re.compile(r" *(?:[-*+]|\d+\.) ")
INLINE = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\s*\n).)+?)(?<!`)\1(?!`)", re.S)
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|al|etc|approx|ca|[Ff]igs?|[Nn]o|[Ss]ec|[Pp]p?|[Ee]q|[Vv]ol|Dr|St)|\.\.)\.$")
# Where one sentence of a paragraph ends and the next begins.
END = re.compile(r"[.!?][\"'”’)\]*_]*(?=\s)")
# A list item, a heading, a row of a table and an empty line begin a new paragraph; a bar a new cell.
BREAK = re.compile(r"\n(?=[ >]*\n|[ >]*(?:[-*+]|\d+\.)\s|#|[ >]*\|)|(?<=^\|)|\s\|(?=\s|$)|(?<=\n)\n|^#.*$", re.M)
PERIPHRASIS = re.compile(ROUNDABOUT.pattern.replace(" ", r"\s+"), re.I)
# A question is no periphrasis where it begins a sentence.
QUESTION = re.compile(r"(?<![\w,:;(]\s)\b(?:what|who)\b[^.!?:;|]*\?", re.I)


def blank(match):
    """As many blanks as characters; ends of lines stay."""
    return re.sub(r"[^\n]", " ", match[0])


def blocks_of_code(text):
    """Fenced and indented blocks: offset and text of each.

    >>> blocks_of_code("Run it:\\n\\n    make\\n\\n```sh\\nmake test\\n```\\n- item\\n\\n    its second paragraph\\n")
    [(9, '    make\\n'), (19, '```sh\\nmake test\\n```\\n')]
    """
    found, at, fence, in_list, before_is_blank = [], 0, None, False, True
    was_indented = False
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        is_indented = line.startswith("    ") and bool(line.strip()) and not in_list and (before_is_blank or was_indented)
        if fence or (mark and not is_indented):
            if not fence:
                found.append((at, ""))
            found[-1] = (found[-1][0], found[-1][1] + line)
            fence = (None if mark and mark[1] == fence else fence) if fence else mark[1]
        elif is_indented:
            if not was_indented:
                found.append((at, ""))
            found[-1] = (found[-1][0], found[-1][1] + line)
        elif line.strip():
            in_list = bool(ITEM.match(line)) or (in_list and (line.startswith("  ") or not before_is_blank))
        was_indented = is_indented
        before_is_blank = not line.strip()
        at += len(line)
    return found


def without_blocks(text):
    """Blanks in the place of comments and of blocks of code."""
    for start, block in blocks_of_code(text):
        text = text[:start] + re.sub(r"[^\n]", " ", block) + text[start + len(block) :]
    return re.sub(r"<!--.*?-->", blank, text, flags=re.S)


def inline_code(text):
    """Offset and text of each code in backticks.

    >>> inline_code("Use `make\\ntest` or ``a`b``.")
    [(5, 'make test'), (21, 'a`b')]
    """
    return [(match.start(2), " ".join(match[2].split())) for match in INLINE.finditer(without_blocks(text))]


def prose(text):
    """The page with code masked, and without the marks of Markdown and the targets of links.

    >>> prose("See [the `a b` page](x.md).\\n").replace(CODE, "#")
    'See  the ##### page       .\\n'
    """
    text = INLINE.sub(lambda match: CODE * len(match[0]), without_blocks(text))
    text = re.sub(r"^\s*\|[\s:|-]+\|\s*$|^\[[^\]]+\]: .*$", blank, text, flags=re.M)
    text = re.sub(r"\]\([^)\s]*\)", blank, text)
    text = re.sub(r"<?\b[a-z]+://[^\s>)]+>?", lambda match: CODE * len(match[0]), text)
    return re.sub(r"!?\[|\]|(?<![\w*])\*+(?=\S)|(?<=\S)\*+(?!\w)|^[ ]*>", blank, text, flags=re.M)


def sentences(text):
    """Offset and words of each sentence. Items of lists, cells of tables and headings end one; colons and semicolons do not. Code is one word.

    >>> [len(words) for _, words in sentences("One two, e.g. three: four\\n`a b`. Five (six).\\n\\n- seven\\n- eight 1.5\\n\\n| nine | ten |\\n|---|---|\\n")]
    [6, 2, 1, 2, 1, 1]
    >>> sentences("# A\\nB c.\\n")
    [(2, ['A']), (4, ['B', 'c.'])]
    """
    text, found = prose(text), []
    ends = {match.end() for match in BREAK.finditer(text)} | {len(text)}
    ends |= {match.end() for match in END.finditer(text) if not ABBREVIATION.search(text[max(0, match.start() - 8) : match.start() + 1])}
    start = 0
    for end in sorted(ends):
        words = [match for match in re.finditer(r"\S+", text[start:end]) if re.search(rf"[\w{CODE}]", match[0])]
        # The number of an item is no word of it.
        if words and re.fullmatch(r"\d+\.", words[0][0]):
            words = words[1:]
        if words:
            found.append((start + words[0].start(), [match[0] for match in words]))
        start = end
    return found


def words(text):
    """Words of prose, code not among them.

    >>> words("Two words: `three four` - see\\n\\n```\\nfive\\n```\\n")
    3
    """
    return sum(bool(re.search(r"[^\W_]", word)) for word in prose(text).split())


def periphrases(text):
    """Offset and text of each periphrasis.

    >>> periphrases("It shows what\\nis there, by itself. What is a pool?\\n`what is` ours\\n")
    [(9, 'what is'), (24, 'by itself')]
    """
    return [(match.start(), " ".join(match[0].split())) for match in PERIPHRASIS.finditer(QUESTION.sub(blank, prose(text)))]
