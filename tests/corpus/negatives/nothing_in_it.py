# corpus: answer = 0
