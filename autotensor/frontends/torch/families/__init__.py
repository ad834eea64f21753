"""Converters of ATen operators, one family in a file: complex numbers, Fourier transforms, experts, …"""
