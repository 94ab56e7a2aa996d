"""Nestcode in the idioms of other libraries. Import the module you need; each names its extra if it is missing.

arrow       codes as columns of Arrow tables and Parquet files
faiss       an index with FAISS's methods; codes to and from FAISS's binary indexes
haystack    a document store of Haystack and its retriever
hub         coders on the Hugging Face Hub
langchain   a vector store of LangChain
llama_index a vector store of LlamaIndex
sklearn     k-nearest-neighbors estimators of scikit-learn
"""
