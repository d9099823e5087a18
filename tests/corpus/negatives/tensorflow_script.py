# corpus: answer = 0
"""Another framework; its strategy is data parallel."""
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()  # "DataParallel" of TensorFlow
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.compile(optimizer='sgd', loss='mse')
model.fit(tf.random.normal((64, 4)), tf.random.normal((64, 2)), batch_size=8)
