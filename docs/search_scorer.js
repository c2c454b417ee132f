/* What a search finds first: pages that tell how to do something, then tutorials; names of the API come
   behind them. Numbers but for `score` are Sphinx's own. */
var Scorer = {
  score: (result) => {
    const [docname, , , , score] = result;
    if (docname.startsWith("how_to/")) return score + 100;
    if (docname.startsWith("tutorial/")) return score + 30;
    if (docname.startsWith("adr/") || ["features", "messages", "map", "assurance_case"].includes(docname))
      return score - 30;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
