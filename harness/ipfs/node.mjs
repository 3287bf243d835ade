// node --require ./polyfill.cjs node.mjs PORT: an IPFS node in memory with Kubo's RPC; it knows nobody else.
import { create } from 'ipfs-core'
import { HttpApi } from 'ipfs-http-server'
import { createRepo } from 'ipfs-repo'
import { MemoryLock } from 'ipfs-repo/locks/memory'
import { MemoryBlockstore } from 'blockstore-core/memory'
import { MemoryDatastore } from 'datastore-core/memory'
import * as dagCBOR from '@ipld/dag-cbor'
import * as dagPB from '@ipld/dag-pb'
import * as raw from 'multiformats/codecs/raw'

const [port] = process.argv.slice(2)
const codecs = [dagCBOR, dagPB, raw]
const codec = asked => codecs.find(each => each.code === asked || each.name === asked)
const stores = { blocks: new MemoryBlockstore() }
for (const name of ['datastore', 'keys', 'pins', 'root']) stores[name] = new MemoryDatastore()
const repo = createRepo('memory', codec, stores, { repoLock: MemoryLock, autoMigrate: false })
const ipfs = await create({
  repo,
  offline: true,
  silent: true,
  preload: { enabled: false },
  init: { algorithm: 'Ed25519', emptyRepo: true },
  config: {
    Addresses: { Swarm: [], API: `/ip4/127.0.0.1/tcp/${port}`, Gateway: '', Delegates: [], RPC: '' },
    Bootstrap: [],
    Discovery: { MDNS: { Enabled: false }, webRTCStar: { Enabled: false } },
    Pubsub: { Enabled: false },
    Routing: { Type: 'none' },
    Swarm: { DisableNatPortMap: true }
  }
})
await new HttpApi(ipfs).start()
console.log('ready')
