import { ponder } from "ponder:registry";
import { fees } from "ponder:schema";

ponder.on("FeeCollector:FeesCollected", async ({ event, context }) => {
  await context.db.insert(fees).values({
    id: event.id,
    token: event.args._token,
    integrator: event.args._integrator,
    integratorFee: event.args._integratorFee,
    lifiFee: event.args._lifiFee,
    blockNumber: event.block.number,
    blockTime: event.block.timestamp,
    transactionHash: event.transaction.hash,
    logIndex: event.log.logIndex,
  });
});
