"""What adapters reach by DMA: host pages, GPU memory, and the keys that guard them.

There are two worlds of addresses. Applications know *virtual addresses*, of host memory or of a
GPU. Adapters put *bus addresses* on the bus. Host memory has the same number in both (there is
no IOMMU); GPU memory appears on the bus through an aperture, GPU page by GPU page.

Nothing here knows packets or queue pairs; a QP number is a number.
"""
