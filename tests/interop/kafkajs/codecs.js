// kafkajs brings gzip; the other codecs are plugged in, as its documentation asks.
'use strict'

const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

async function installCodecs(types, codecs) {
  const zstd = await new Promise((resolve) => ZstdCodec.run((made) => resolve(new made.Simple())))
  codecs[types.Snappy] = SnappyCodec
  codecs[types.LZ4] = () => ({
    compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async (data) => Buffer.from(lz4.decompress(data)),
  })
  codecs[types.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (data) => Buffer.from(zstd.decompress(data)),
  })
}

module.exports = { installCodecs }
