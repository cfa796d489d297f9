"""Likely places of objects: for each object type, the receptacle types to search, most promising first.

Counted on the 200 games of valid_train alone, valid_seen is held out. A type is ranked by the share of its receptacles
that hold such an object, among the rooms that have one: (holding + 0.2) / (all + 4), so that a few lucky finds do not
count for much. It is halved for types that must be opened first, since those take two commands instead of one.
"""

LIKELY_PLACES: dict[str, str] = {
    "alarmclock": "diningtable desk dresser sidetable shelf",
    "apple": "diningtable garbagecan sidetable fridge countertop sinkbasin microwave",
    "book": "bed desk sofa diningtable countertop tvstand dresser coffeetable sidetable cabinet drawer shelf",
    "bowl": "desk tvstand diningtable dresser countertop fridge sidetable sinkbasin shelf microwave cabinet",
    "box": "diningtable dresser coffeetable sofa tvstand sidetable armchair shelf",
    "bread": "diningtable countertop fridge sidetable microwave",
    "butterknife": "diningtable countertop sidetable sinkbasin drawer",
    "candle": "toilet sidetable dresser countertop shelf diningtable cart coffeetable cabinet drawer",
    "cd": "dresser desk diningtable sidetable garbagecan shelf cabinet armchair safe drawer",
    "cellphone": "bed desk dresser coffeetable armchair sofa countertop diningtable sidetable shelf safe drawer",
    "cloth": "bathtubbasin countertop shelf cart cabinet toilet sinkbasin drawer",
    "creditcard": (
        "coffeetable countertop tvstand dresser desk ottoman diningtable sofa sidetable armchair shelf drawer"
    ),
    "cup": "diningtable fridge countertop sinkbasin shelf microwave cabinet",
    "desklamp": "sidetable desk dresser coffeetable shelf",
    "dishsponge": "diningtable bathtubbasin toilet countertop cart sinkbasin shelf garbagecan drawer cabinet",
    "egg": "garbagecan sinkbasin fridge countertop diningtable microwave",
    "floorlamp": "sinkbasin",
    "fork": "diningtable countertop sidetable sinkbasin drawer",
    "glassbottle": "diningtable countertop sinkbasin shelf fridge garbagecan cabinet",
    "handtowel": "handtowelholder countertop",
    "kettle": "countertop stoveburner diningtable sinkbasin cabinet",
    "keychain": "diningtable dresser desk armchair safe tvstand coffeetable sofa sidetable shelf cabinet drawer",
    "knife": "diningtable countertop sinkbasin drawer",
    "ladle": "diningtable countertop sinkbasin drawer cabinet",
    "laptop": "bed diningtable desk sofa tvstand coffeetable dresser armchair sidetable",
    "lettuce": "diningtable countertop fridge sidetable sinkbasin",
    "mug": "desk sidetable coffeemachine diningtable dresser countertop sinkbasin fridge shelf microwave cabinet",
    "newspaper": "diningtable sofa coffeetable ottoman armchair shelf sidetable drawer",
    "pan": "stoveburner countertop diningtable fridge cabinet",
    "papertowelroll": "diningtable sidetable garbagecan countertop shelf",
    "pen": "diningtable desk dresser countertop sidetable coffeetable shelf garbagecan drawer",
    "pencil": "diningtable desk coffeetable sidetable dresser countertop shelf garbagecan drawer",
    "peppershaker": "sidetable diningtable countertop shelf drawer cabinet",
    "pillow": "bed sofa ottoman armchair",
    "plate": "diningtable countertop coffeetable shelf fridge sidetable microwave cabinet sinkbasin",
    "pot": "stoveburner diningtable countertop fridge cabinet",
    "potato": "sidetable diningtable countertop sinkbasin fridge garbagecan microwave",
    "remotecontrol": "desk coffeetable tvstand dresser sofa armchair diningtable ottoman sidetable shelf drawer",
    "saltshaker": "diningtable sidetable countertop shelf drawer cabinet",
    "soapbar": "countertop toilet shelf sinkbasin sidetable cart garbagecan bathtubbasin cabinet drawer",
    "soapbottle": "toilet sidetable diningtable countertop garbagecan cart shelf cabinet drawer",
    "spatula": "diningtable countertop sidetable sinkbasin drawer",
    "spoon": "diningtable sidetable countertop sinkbasin drawer",
    "spraybottle": "countertop cart toilet diningtable sidetable dresser garbagecan shelf toaster cabinet",
    "statue": "coffeetable diningtable countertop dresser sidetable tvstand shelf",
    "teddybear": "bed",
    "tissuebox": "diningtable cart desk countertop dresser sidetable coffeetable shelf tvstand toilet drawer",
    "toiletpaper": "toilet shelf sidetable countertop toiletpaperhanger cart garbagecan cabinet drawer",
    "tomato": "diningtable countertop fridge sidetable garbagecan sinkbasin",
    "towel": "towelholder countertop",
    "vase": "countertop diningtable dresser tvstand shelf sidetable coffeetable cabinet",
    "watch": "tvstand dresser diningtable coffeetable sidetable shelf drawer",
    "wateringcan": "coffeetable",
    "winebottle": "diningtable countertop garbagecan shelf cabinet fridge",
}
"""Object type: the receptacle types where it was seen."""

EVERY_PLACE = (
    "diningtable countertop desk dresser coffeetable bed tvstand cart sofa toilet sidetable fridge "
    "sinkbasin bathtubbasin ottoman shelf armchair towelholder garbagecan handtowelholder stoveburner "
    "microwave safe coffeemachine drawer cabinet toiletpaperhanger toaster laundryhamper"
)
"""Remaining types, in the order of the mean number of objects that lie in or on one, halved likewise."""
