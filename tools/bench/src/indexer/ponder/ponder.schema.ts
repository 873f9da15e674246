import { onchainTable } from "ponder";

export const fees = onchainTable("fees", (t) => ({
  id: t.text().primaryKey(),
  token: t.hex().notNull(),
  integrator: t.hex().notNull(),
  integratorFee: t.bigint().notNull(),
  lifiFee: t.bigint().notNull(),
  blockNumber: t.bigint().notNull(),
  blockTime: t.bigint().notNull(),
  transactionHash: t.hex().notNull(),
  logIndex: t.integer().notNull(),
}));
