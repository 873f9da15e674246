// Reads transactions with an unchanged tronweb and prints what they did, one JSON object for each id.
const { createRequire } = require('node:module');

const [, , modules, url, token, ...ids] = process.argv;
const { TronWeb } = createRequire(`${modules}/`)('tronweb');
const tronWeb = new TronWeb({ fullHost: url });

(async () => {
  const seen = [];
  for (const id of ids) {
    const [info, tx] = [await tronWeb.trx.getTransactionInfo(id), await tronWeb.trx.getConfirmedTransaction(id)];
    const contract = tx.raw_data.contract[0];
    const value = contract.parameter.value;
    if (contract.type === 'TransferContract') {
      const to = tronWeb.address.fromHex(value.to_address);
      const balance = String(await tronWeb.trx.getBalance(to));
      seen.push({ id: info.id, block: info.blockNumber, kind: 'TRX', to, amount: String(value.amount), balance });
    } else {
      const log = info.log.find((one) => tronWeb.address.fromHex(`41${one.address}`) === token);
      const to = tronWeb.address.fromHex(`41${log.topics[2].slice(24)}`);
      const amount = BigInt(`0x${log.data}`).toString();
      const result = info.receipt.result;
      seen.push({ id: info.id, block: info.blockNumber, kind: result === 'SUCCESS' ? 'USDT' : result, to, amount });
    }
  }
  console.log(JSON.stringify(seen));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
