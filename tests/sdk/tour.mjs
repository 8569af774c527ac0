// What a program does with the unmodified JavaScript SDK of E2B: one case a name, as tour.py. Where the
// package lies is said by the environment: E2B_PACKAGE, a folder with node_modules.
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import process from 'node:process'

const require = createRequire(process.env.E2B_PACKAGE + '/package.json')
const e2b = require('e2b')
const { Sandbox } = e2b
let box

function expect(condition, what = 'condition does not hold') {
  if (!condition) throw new Error(typeof what === 'string' ? what : JSON.stringify(what))
}

async function raises(kind, action) {
  try {
    await action()
  } catch (error) {
    if (error instanceof kind) return error
    throw error
  }
  throw new Error(`no ${kind.name} was raised`)
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const cases = {
  async create_and_info() {
    const info = await box.getInfo()
    expect(info.sandboxId === box.sandboxId && info.templateId === 'base', info)
    expect(info.metadata.suite === 'tour-js', info)
    expect(info.endAt > info.startedAt && (await box.isRunning()))
  },
  async commands() {
    const done = await box.commands.run('echo out; echo err >&2; echo $GREETING $ONE; pwd; id -un', { envs: { ONE: '1' } })
    expect(done.stdout === 'out\nhi 1\n/home/user\nuser\n' && done.stderr === 'err\n', done)
    expect((await box.commands.run('id -un', { user: 'root', cwd: '/' })).stdout === 'root\n')
    const error = await raises(e2b.CommandExitError, () => box.commands.run('echo no >&2; exit 3'))
    expect(error.exitCode === 3 && error.stderr === 'no\n', error)
    let seen = ''
    await box.commands.run('for n in 1 2 3; do echo $n; done', { onStdout: (text) => { seen += text } })
    expect(seen === '1\n2\n3\n', seen)
  },
  async command_errors() {
    await raises(e2b.TimeoutError, () => box.commands.run('sleep 30', { timeoutMs: 2000 }))
    await raises(e2b.AuthenticationError, () => box.commands.run('true', { user: 'nobody-here' }))
    await raises(e2b.InvalidArgumentError, () => box.commands.run('true', { cwd: '/not/there' }))
  },
  async background_stdin_and_kill() {
    const cat = await box.commands.run('cat', { background: true, stdin: true })
    expect((await box.commands.list()).some((one) => one.pid === cat.pid))
    await box.commands.sendStdin(cat.pid, 'typed\n')
    if (box.commands.closeStdin) {
      await box.commands.closeStdin(cat.pid)
      expect((await cat.wait()).stdout === 'typed\n')
    }
    const sleeper = await box.commands.run('sleep 600', { background: true })
    expect(await box.commands.kill(sleeper.pid))
    await raises(e2b.CommandExitError, () => sleeper.wait())
    expect(!(await box.commands.kill(sleeper.pid)), 'killed twice')
  },
  async files() {
    const files = box.files
    expect((await files.write('notes/a.txt', 'text ä\n')).path === '/home/user/notes/a.txt')
    expect((await files.read('notes/a.txt')) === 'text ä\n')
    await files.write([{ path: '/tmp/one', data: '1' }, { path: '/tmp/two', data: new Uint8Array([0, 255]).buffer }])
    expect(Buffer.from(await files.read('/tmp/two', { format: 'bytes' })).equals(Buffer.from([0, 255])))
    expect((await files.list('notes')).map((one) => one.name).join() === 'a.txt')
    const info = await files.getInfo('notes/a.txt')
    expect(info.size === 8 && info.owner === 'user' && info.permissions === '-rw-r--r--', info)
    expect((await files.exists('notes')) && !(await files.exists('nothing')))
    expect((await files.makeDir('notes/deep')) && !(await files.makeDir('notes/deep')))
    expect((await files.rename('notes/a.txt', 'notes/deep/b.txt')).path === '/home/user/notes/deep/b.txt')
    await files.remove('notes')
    expect(!(await files.exists('notes')))
    await raises(e2b.NotFoundError, () => files.read('notes/a.txt'))
    const big = Buffer.alloc(4 << 20, '0123456789abcdef')
    await files.write('/tmp/big', new Blob([big]))
    const sum = (await box.commands.run('sha256sum < /tmp/big')).stdout.split(' ')[0]
    expect(sum === createHash('sha256').update(big).digest('hex'))
    expect(Buffer.from(await files.read('/tmp/big', { format: 'bytes' })).equals(big))
  },
  async watch() {
    await box.files.makeDir('/tmp/watched')
    const events = []
    const watch = await box.files.watchDir('/tmp/watched', (event) => { events.push(event) })
    await box.files.write('/tmp/watched/new.txt', 'x')
    for (let n = 0; n < 50 && events.length === 0; n++) await pause(200)
    expect(events.length > 0 && events[0].name === 'new.txt', events)
    await watch.stop()
  },
  async terminal() {
    let seen = ''
    const pty = await box.pty.create({ rows: 20, cols: 100, onData: (bytes) => { seen += Buffer.from(bytes) } })
    await box.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit 5\n'))
    const error = await raises(e2b.CommandExitError, () => pty.wait())
    expect(error.exitCode === 5 && seen.includes('20 100'), seen)
  },
  async signed_urls() {
    await box.files.write('/tmp/shared', 'shared')
    const url = await box.downloadUrl('/tmp/shared')
    expect((await (await fetch(url)).text()) === 'shared')
    const upload = await box.uploadUrl('/tmp/sent')
    const form = new FormData()
    form.append('file', new Blob(['sent']))
    const answer = await fetch(upload, { method: 'POST', body: form })
    expect(answer.status === 200, await answer.text())
    expect((await box.files.read('/tmp/sent')) === 'sent')
    expect((await fetch(url.replace('signature=v1_', 'signature=v1_x'))).status === 401)
  },
  async metrics() {
    let points = []
    for (let n = 0; n < 60 && points.length === 0; n++) {
      points = await box.getMetrics()
      if (points.length === 0) await pause(1000)
    }
    expect(points.length > 0 && points[0].memTotal > points[0].memUsed && points[0].memUsed > 0, points)
  },
  async lists() {
    const pages = Sandbox.list({ query: { metadata: { suite: 'tour-js' } } })
    const found = []
    while (pages.hasNext) found.push(...(await pages.nextItems()))
    expect(found.some((one) => one.sandboxId === box.sandboxId), found)
    expect((await Sandbox.list({ query: { metadata: { 'k y': 'v&1=%' } } }).nextItems()).length === 0)
  },
  async timeouts_and_kill() {
    const other = await Sandbox.create('base', { timeoutMs: 60_000 })
    const before = (await other.getInfo()).endAt
    await other.setTimeout(300_000)
    expect((await other.getInfo()).endAt > before)
    const again = await Sandbox.connect(other.sandboxId)
    expect((await again.commands.run('echo connected')).stdout === 'connected\n')
    expect(await other.kill())
    expect(!(await Sandbox.kill(other.sandboxId)), 'killed twice')
    expect(!(await other.isRunning()))
    await raises(e2b.NotFoundError, () => other.getInfo())
  },
  async pause_and_connect() {
    const other = await Sandbox.create('base', { timeoutMs: 300_000 })
    try {
      await other.commands.run('echo kept > /dev/shm/kept; sleep 600 >/dev/null 2>&1 &')
      await (other.pause ?? other.betaPause).call(other)
      expect(!(await other.isRunning()))
      const back = await Sandbox.connect(other.sandboxId, { timeoutMs: 300_000 })
      expect((await back.commands.run('cat /dev/shm/kept; pgrep -c sleep')).stdout === 'kept\n1\n')
    } finally {
      await Sandbox.kill(other.sandboxId)
    }
  },
  async fork_and_snapshot() {
    if (!box.createSnapshot) return
    await box.commands.run('echo branch > /dev/shm/branch')
    const snapshot = await box.createSnapshot()
    const copy = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000 })
    expect((await copy.commands.run('cat /dev/shm/branch')).stdout === 'branch\n')
    await copy.kill()
    expect(await Sandbox.deleteSnapshot(snapshot.snapshotId))
    expect(!(await Sandbox.deleteSnapshot(snapshot.snapshotId)), 'deleted twice')
    for (const child of box.fork ? await box.fork({ count: 2 }) : []) {
      expect(child instanceof Sandbox, child)
      expect((await child.commands.run('cat /dev/shm/branch')).stdout === 'branch\n')
      await child.kill()
    }
  },
  async templates() {
    if (!e2b.Template?.exists) return
    expect((await e2b.Template.exists('base')) && !(await e2b.Template.exists('there-is-none')))
  },
  async wrong_key_and_template() {
    await raises(e2b.AuthenticationError, () => Sandbox.create('base', { apiKey: 'e2b_' + '0'.repeat(40) }))
    await raises(e2b.SandboxError, () => Sandbox.create('no-such-template'))
  },
  async twenty_in_parallel() {
    const many = await Promise.all(Array.from({ length: Number(process.env.TOUR_PARALLEL ?? 3) }, () =>
      Sandbox.create('base', { timeoutMs: 600_000 })))
    const outs = await Promise.all(many.map((one, n) => one.commands.run(`echo ${n}`)))
    expect(outs.every((out, n) => out.stdout === `${n}\n`), outs)
    await Promise.all(many.map((one) => one.kill()))
  },
}

const wanted = process.argv.slice(2)
let failed = 0
box = await Sandbox.create('base', { timeoutMs: 600_000, metadata: { suite: 'tour-js' }, envs: { GREETING: 'hi' } })
try {
  for (const [name, run] of Object.entries(cases)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue
    const begun = Date.now()
    try {
      await run()
      console.log(`ok ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`)
    } catch (error) {
      failed++
      console.log(`FAIL ${name}: ${error?.constructor?.name}: ${error?.message}`)
      console.error(error)
    }
  }
} finally {
  await box.kill()
}
process.exit(failed ? 1 : 0)
