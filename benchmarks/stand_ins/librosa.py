"""Reads wav files."""

import wave

import numpy


def load(path, sr=None):
    with wave.open(path) as file:
        data = numpy.frombuffer(file.readframes(file.getnframes()), "int16")
        return data.astype("float32") / 32768, file.getframerate()
