// BullMQ as a durable queue, for the suite `queue`: reads what to measure, a line each, and answers with a number.
//
//   put CLIENTS JOBS | bulk CLIENTS JOBS | work CLIENTS JOBS | through CLIENTS JOBS      seconds
//   wait COUNT                                                                          microseconds, at the median
//
// Every client has a connection of its own, and every worker one job at a time.
const { Queue, Worker } = require('bullmq');
const { createInterface } = require('node:readline');

const PAYLOAD = 'a payload of some bytes, as jobs have';
const BULK = 100;
const connection = { path: process.argv[1], maxRetriesPerRequest: null };
const seconds = (began) => Number(process.hrtime.bigint() - began) / 1e9;
const all = (count, make) => Promise.all(Array.from({ length: count }, (_, at) => make(at)));

async function queues(clients) {
  return all(clients, async () => {
    const queue = new Queue('jobs', { connection, defaultJobOptions: { removeOnComplete: true } });
    await queue.waitUntilReady();
    return queue;
  });
}

async function workers(clients, handle) {
  return all(clients, async () => {
    const worker = new Worker('jobs', handle, { connection, concurrency: 1, autorun: false });
    await worker.waitUntilReady();
    return worker;
  });
}

async function check(job) {
  if (job.data !== PAYLOAD) throw new Error('another payload');
}

// Resolves when so many jobs are done and Redis has said so.
function finished(ready, jobs) {
  return new Promise((resolve, reject) => {
    let done = 0;
    for (const worker of ready) {
      worker.on('completed', () => { if (++done === jobs) resolve(); });
      worker.on('failed', (_, error) => reject(error));
      worker.run().catch(reject);
    }
  });
}

const send = (senders, jobs) => all(senders.length, async (at) => {
  for (let job = 0; job < Math.floor(jobs / senders.length); job += 1) await senders[at].add('job', PAYLOAD);
});

const sendMany = (senders, jobs) => all(senders.length, async (at) => {
  const many = Array.from({ length: BULK }, () => ({ name: 'job', data: PAYLOAD }));
  for (let call = 0; call < Math.floor(jobs / senders.length / BULK); call += 1) await senders[at].addBulk(many);
});

const close = (things) => all(things.length, (at) => things[at].close());

async function measure(what, clients, jobs) {
  const senders = what === 'work' ? [] : await queues(clients);
  const works = what === 'work' || what === 'through';
  const ready = works ? await workers(clients, check) : [];
  const began = process.hrtime.bigint();
  const sent = what === 'bulk' ? sendMany(senders, jobs) : send(senders, jobs);
  await Promise.all([sent, works ? finished(ready, jobs) : undefined]);
  const took = seconds(began);
  await close([...senders, ...ready]);
  return took;
}

async function wait(count) {
  let tell;
  const ready = await workers(1, async () => tell());
  const [queue] = await queues(1);
  ready[0].run();
  const times = [];
  for (let at = 0; at < count; at += 1) {
    const heard = new Promise((resolve) => { tell = resolve; });
    const began = process.hrtime.bigint();
    // The handler may begin before the sender has heard that the job is there.
    let took;
    await Promise.all([queue.add('job', PAYLOAD), heard.then(() => { took = seconds(began) * 1e6; })]);
    times.push(took);
    await new Promise((resolve) => { setTimeout(resolve, 1); });
  }
  await close([queue, ...ready]);
  return times.sort((left, right) => left - right)[Math.floor(count / 2)];
}

(async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    const [what, ...numbers] = line.split(' ');
    const answer = what === 'wait' ? wait(Number(numbers[0])) : measure(what, Number(numbers[0]), Number(numbers[1]));
    process.stdout.write(`${await answer}\n`);
  }
})().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
