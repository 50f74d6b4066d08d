document.getElementById("again").hidden = !location.search;
