"""Nestcode in the idioms of other libraries, one file for each: import the one you need.

`faiss.py` is an index with FAISS's methods, and takes codes to and from FAISS; `arrow.py` keeps codes in columns of
Arrow tables and Parquet files; `langchain.py` is a vector store of LangChain.
"""
