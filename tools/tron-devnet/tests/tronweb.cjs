// Drives the devnet with an unchanged tronweb. Ends with 0 when every claim holds.
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');

const [, , modules, url, key, to, token] = process.argv;
const { TronWeb } = createRequire(`${modules}/`)('tronweb');
const tronWeb = new TronWeb({ fullHost: url, privateKey: key });
tronWeb.setEventServer(url);
const from = tronWeb.defaultAddress.base58;

async function admin(path, body) {
  const response = await fetch(`${url}/admin/${path}`, {
    method: body ? 'POST' : 'GET',
    headers: { 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}
const mine = (blocks = 1) => admin('produce', { blocks });
const solidify = async () => mine((await admin('state')).head - (await admin('state')).solid + 1);

async function transfers() {
  const before = await tronWeb.trx.getUnconfirmedBalance(from);
  assert.equal(await tronWeb.trx.getBalance(to), 0);
  assert.deepEqual(await tronWeb.trx.getAccount(to), {});

  const sent = await tronWeb.trx.sendTransaction(to, 2_000_000);
  assert.equal(sent.result, true);
  const pending = await tronWeb.trx.getTransaction(sent.txid);
  assert.equal(pending.txID, sent.txid);
  assert.deepEqual(await tronWeb.trx.getUnconfirmedTransactionInfo(sent.txid), {});
  await mine();
  const info = await tronWeb.trx.getUnconfirmedTransactionInfo(sent.txid);
  assert.equal(info.fee, 1_100_000);
  assert.deepEqual(await tronWeb.trx.getTransactionInfo(sent.txid), {});
  await solidify();
  assert.equal((await tronWeb.trx.getTransactionInfo(sent.txid)).blockNumber, info.blockNumber);
  assert.equal((await tronWeb.trx.getConfirmedTransaction(sent.txid)).ret[0].contractRet, 'SUCCESS');
  assert.equal(await tronWeb.trx.getBalance(to), 2_000_000);
  assert.equal(await tronWeb.trx.getUnconfirmedBalance(from), before - 2_000_000 - 1_100_000);

  const block = await tronWeb.trx.getBlockByNumber(info.blockNumber);
  assert.deepEqual(block.transactions.map((tx) => tx.txID), [sent.txid]);
  const next = await tronWeb.trx.getBlockByNumber(info.blockNumber + 1);
  assert.equal(next.block_header.raw_data.parentHash, block.blockID);
  assert.equal((await tronWeb.trx.getBlockByHash(block.blockID)).blockID, block.blockID);
  const range = await tronWeb.trx.getBlockRange(info.blockNumber, info.blockNumber + 1);
  assert.deepEqual(range.map((each) => each.blockID), [block.blockID, next.blockID]);
}

async function builtByTheNode() {
  const request = { owner_address: tronWeb.address.toHex(from), to_address: tronWeb.address.toHex(to), amount: 5 };
  const built = await tronWeb.fullNode.request('wallet/createtransaction', request, 'post');
  const signed = await tronWeb.trx.sign(built);
  const bytes = tronWeb.utils.transaction.txJsonToPb(signed);
  signed.signature.forEach((each) => bytes.addSignature(Uint8Array.from(Buffer.from(each, 'hex'))));
  const sent = await tronWeb.trx.sendHexTransaction(Buffer.from(bytes.serializeBinary()).toString('hex'));
  assert.equal(sent.code, 'SUCCESS');
  assert.equal(sent.txid, signed.txID);
  assert.equal(sent.transaction.txID, signed.txID);
  await mine();
  const again = await tronWeb.trx.sendRawTransaction(signed);
  assert.equal(again.code, 'DUP_TRANSACTION_ERROR');
  assert.equal(tronWeb.toUtf8(again.message), 'Dup transaction.');
  const paid = await admin(`payments?to=${to}&amount=5&token=TRX`);
  assert.deepEqual([paid.count, paid.total], [1, '5']);
}

async function tokens() {
  const contract = await tronWeb.contract().at(token);
  assert.equal(await contract.symbol().call(), 'USDT');
  assert.equal(Number(await contract.decimals().call()), 6);
  const before = await contract.balanceOf(from).call();

  // Built by the node.
  const parameters = [{ type: 'address', value: to }, { type: 'uint256', value: 250 }];
  const options = { feeLimit: 100_000_000 };
  const built = await tronWeb.transactionBuilder.triggerSmartContract(token, 'transfer(address,uint256)', options, parameters);
  const sent = await tronWeb.trx.sendRawTransaction(await tronWeb.trx.sign(built.transaction));
  assert.equal(sent.result, true);
  await mine();
  // Built by the client alone, from a block header.
  const local = await tronWeb.transactionBuilder.triggerSmartContract(
    token, 'transfer(address,uint256)', { ...options, txLocal: true }, parameters);
  const own = await tronWeb.trx.sendRawTransaction(await tronWeb.trx.sign(local.transaction));
  assert.equal(own.result, true);
  // Through the contract's own interface.
  await mine();
  const third = await contract.transfer(to, 500).send(options);
  await solidify();

  const info = await tronWeb.trx.getTransactionInfo(sent.txid);
  assert.equal(info.receipt.result, 'SUCCESS');
  assert.equal(info.receipt.energy_usage_total, 130_285);
  assert.equal(info.log[0].address, tronWeb.address.toHex(token).slice(2));
  assert.equal(BigInt(`0x${info.log[0].data}`), 250n);
  assert.equal((await tronWeb.trx.getTransactionInfo(third)).receipt.energy_usage_total, 64_285);
  assert.equal(await contract.balanceOf(to).call(), 1_000n);
  assert.equal(before - (await contract.balanceOf(from).call()), 1_000n);

  const events = await tronWeb.event.getEventsByContractAddress(token, { eventName: 'Transfer' });
  assert.deepEqual(events.data.map((event) => event.result.value), ['500', '250', '250']);
  assert.equal((await tronWeb.event.getEventsByTransactionID(third)).data.length, 1);

  const beyond = [{ type: 'address', value: to }, { type: 'uint256', value: '99999999999999999' }];
  const failing = await tronWeb.transactionBuilder.triggerSmartContract(token, 'transfer(address,uint256)', options, beyond);
  const failed = await tronWeb.trx.sendRawTransaction(await tronWeb.trx.sign(failing.transaction));
  assert.equal(failed.result, true);
  await solidify();
  const failure = await tronWeb.trx.getTransactionInfo(failed.txid);
  assert.deepEqual([failure.result, failure.receipt.result], ['FAILED', 'REVERT']);
  assert.equal(tronWeb.toUtf8(failure.resMessage), 'REVERT opcode executed');
  const paid = await admin(`payments?to=${to}&token=${token}`);
  assert.deepEqual([paid.count, paid.solid_count, paid.total], [3, 3, '1000']);
}

async function readings() {
  const parameters = await tronWeb.trx.getChainParameters();
  assert.equal(parameters.find((each) => each.key === 'getEnergyFee').value, 100);
  assert.equal((await tronWeb.trx.getAccountResources(from)).freeNetLimit, 600);
  assert.match((await tronWeb.trx.getNodeInfo()).solidityBlock, /^Num:\d+,ID:[0-9a-f]{64}$/);
  await assert.rejects(tronWeb.trx.getTransaction('00'.repeat(32)), /not found/);
  await assert.rejects(tronWeb.transactionBuilder.estimateEnergy(
    token, 'transfer(address,uint256)', {}, [{ type: 'address', value: to }, { type: 'uint256', value: 1 }]),
  /does not support estimate energy/);
}

(async () => {
  await transfers();
  await builtByTheNode();
  await tokens();
  await readings();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
