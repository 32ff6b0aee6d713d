"""Words that comments and pages do without. For tests/layers and tests/pages."""
import re

# Periphrases: they say around a thing, where they could name it.
ROUNDABOUT = re.compile(
    r"\b(so many|so much|nobody|by itself|at the most|of late|for ever|what (is|was|are|were|has|had|it|they|there|one|an?|the|he|who|would|can|could|comes|came|goes|follows|lies|belongs|does|did|do)"
    r"|who (is|has|had|was|does|gets|reads|writes|asks|wants|waits|would)|whoever)\b",
    re.I,
)
# Private words and metaphors that the field's terms have replaced (docs/reference/glossary.md).
PRIVATE = re.compile(
    r"\b(lead(s|ing)? (to|elsewhere|there|nowhere)|led (to|elsewhere|away|there)|believed?|spare slots?|retired?|matur\w+|starv\w+|twins?|same place|undone|canar\w+|mend(s|ed|ing)?|tidy"
    r"|broken on purpose|at home|come home|unlucky|call(s|ed)? in|lent|loans?|unasked|under way|(has|with) heads|room)\b",
    re.I,
)
