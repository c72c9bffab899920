"""ClickHouse's server of 25.8. Its package for Python holds the whole program, and its library exports where that begins.

usage: current.py LIBRARY ARGUMENT ... ; the arguments are clickhouse-server's.
"""

import ctypes
import sys

library, *arguments = sys.argv[1:]
words = [word.encode() for word in ["clickhouse-server", *arguments]]
begin = ctypes.CDLL(library)["_Z25mainEntryClickHouseServeriPPc"]
sys.exit(begin(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)))
