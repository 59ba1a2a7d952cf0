"""Synonyms that tools and their users use for each other: a small table, kept by hand.

Each line is one meaning. A word of a query also finds the other words on its line, at a discount. Only pairs
that hold in nearly every catalog belong here; `MeaningScorer` finds all other synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_toolset.catalog.search.text import stem

_LINES = """
add append insert
aggregate summarize total
ai llm
article post
authenticate login signin
begin start launch
bug issue ticket
buy purchase order
calculate compute
calendar schedule event
cancel abort stop
chart graph plot diagram visualize
chat message conversation
client customer
combine merge join concatenate
command shell terminal
compare diff difference
config configuration setting
container docker
contact person
convert transform
copy duplicate clone
create make new
currency exchange forex
database db sql
delete remove erase
deploy release publish
directory folder dir
document doc
docs documentation
download fetch
edit modify update change
email mail
employee staff
environment env
error exception failure
execute run
expense cost
explain describe
fetch retrieve get
file document
film movie
find search lookup query
function method
generate create
history log
image picture photo img
info information detail
invite add
invoice bill
job vacancy position
kubernetes k8s
latest recent newest
library package
link url
list enumerate show
location place address
maximum max
meeting appointment event
minimum min
move rename
music song track
navigate directions route
news headline
notify notification alert
open launch
organization org company
page webpage
paper publication
password credential secret
payment charge
picture screenshot
presentation slide powerpoint ppt
price cost quote
question query
reference citation
refund reimburse
repair fix
repository repo
restaurant dining
resume cv
save store write
scrape crawl
send post
share stock equity
shop store
site website
spreadsheet excel workbook xlsx
statistics stats
summary digest overview
task todo
translate translation
trip travel
undo revert rollback
upload put
user account member
video clip
view read show
weather forecast
word docx
"""


def _neighbours() -> Mapping[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _LINES.split("\n"):
        terms = [stem(word) for word in line.split()]
        for term in terms:
            table.setdefault(term, {}).update((other, None) for other in terms if other != term)
    return {term: tuple(others) for term, others in table.items()}


ALIASES = _neighbours()
